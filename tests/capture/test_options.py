"""What a user may say to the backend, and what the report says."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import fusegen  # noqa: E402
from tests.capture.models import Tabular  # noqa: E402
from tests.capture.test_backend import Make  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def afresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_by_its_name(tmp_path: Path) -> None:
    """On a CPU specs and packages are written, and PyTorch's operators run."""
    model, x = Tabular(8), torch.randn(5, 8)
    compiled = torch.compile(model, backend="fusegen", options={"directory": str(tmp_path / "ours"), "rest": "eager"})
    expected = torch.nn.Sequential(model).eval()(x)
    torch.testing.assert_close(compiled.eval()(x), expected)
    assert (tmp_path / "ours/specs/batch_norm_gelu.yaml").is_file()
    assert (tmp_path / "ours/generated/batch_norm_gelu/kernels.cu").is_file()


def test_on_a_cpu_the_report_says_so(tmp_path: Path) -> None:
    backend = fusegen.Backend(tmp_path / "fused", rest="eager")
    torch.compile(Tabular(8), backend=backend)(torch.randn(5, 8))
    assert str(backend.report) == (
        "1 graph: kernels of fusegen in 0 places, 3 regions left\n"
        "  left: batch_norm, gelu: the tensors are on cpu, where there are no kernels\n"
        f"      {backend.report.left[0].place} (3 times)\n"
        "  kept: linear (3 times): products, convolutions and attention are the vendor library's"
    )


def test_never_built_is_never_written(tmp_path: Path) -> None:
    model, x = Tabular(8), torch.randn(5, 8)
    compiled = fusegen.compile(model, directory=tmp_path / "fused", build="never", rest="eager")
    torch.testing.assert_close(compiled.eval()(x), model.eval()(x))
    assert not list(tmp_path.iterdir())


def test_never_built_says_what_is_missing(tmp_path: Path) -> None:
    backend = fusegen.Backend(tmp_path / "fused", build="never", rest="eager")
    torch.compile(Tabular(8), backend=backend)(torch.randn(5, 8))
    package = tmp_path / "fused/generated/batch_norm_gelu"
    assert {each.reason for each in backend.report.left} == {f"there is no package {package}, and build is 'never'"}


@pytest.mark.parametrize("options", [{"build": "always"}, {"rest": "none"}, {"choose": "some"}])
def test_wrong_values(options: dict[str, str]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} must be one of"):
        fusegen.Backend(**options)


def test_what_was_written_by_one_serves_the_next(tmp_path: Path) -> None:
    """Its text is not written again, and nothing is rendered that is there."""
    found = []
    for _ in range(2):
        torch.compile(Tabular(8), backend=fusegen.Backend(tmp_path, rest="eager"))(torch.randn(5, 8))
        known = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.suffix in (".yaml", ".cu")}
        found.append(known)
        torch._dynamo.reset()
    assert found[0] == found[1]
    assert {path.name for path in known} >= {"batch_norm_gelu.yaml", "kernels.cu"}


@pytest.mark.nvcc
def test_the_places(backend: Make) -> None:
    own = backend()
    torch.compile(Tabular(11), backend=own)(torch.randn(4, 11))
    first, spec, places, kept, expected = str(own.report).splitlines()
    assert first == "1 graph: kernels of fusegen in 3 places" and kept.startswith("  kept: linear (3 times): ")
    assert spec == f"  {own.report.specs / 'batch_norm_gelu.yaml'}: batch_norm, gelu"
    assert "models.py" in places and places.endswith("(3 times)")
    assert expected.startswith(
        "  these chains alone: expected on H100 in float32 at the sizes of these 3 places: step "
    )
