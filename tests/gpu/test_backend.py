"""Models behind torch.compile on a GPU: the kernels run, and they train as the original does."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import fusegen  # noqa: E402
from fusegen.capture.measure import FILE  # noqa: E402
from tests.capture.models import PostNorm, PreNorm, Residual  # noqa: E402
from tests.capture.test_backend import check, step  # noqa: E402
from tests.capture.test_products import Convolved  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc, pytest.mark.gpu]
MODELS = {
    "images": (lambda: nn.Sequential(Residual(16), Residual(16)), (4, 16, 14, 13), 4),
    "post_norm": (lambda: nn.Sequential(PostNorm(96), PostNorm(96)), (3, 50, 96), 2),
    "pre_norm": (lambda: PreNorm(96), (3, 50, 96), 2),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fused")


@pytest.fixture(autouse=True)
def float32_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """TF32 in convolutions would hide what the kernels round."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.mark.parametrize("rest", ["eager", "inductor"])
@pytest.mark.parametrize(
    ("name", "layout"),
    [*((name, torch.contiguous_format) for name in MODELS), ("images", torch.channels_last)],
)
def test_against_double_precision(name: str, layout: torch.memory_format, rest: str, directory: Path) -> None:
    make, shape, count = MODELS[name]
    torch.manual_seed(0)
    eager = make().cuda().to(memory_format=layout)
    exact, fused = copy.deepcopy(eager).double(), copy.deepcopy(eager)
    backend = fusegen.Backend(directory, rest=rest)
    compiled = torch.compile(fused, backend=backend)
    x, grad = (torch.randn(shape, device="cuda").to(memory_format=layout) for _ in range(2))
    mine = step(fused, compiled, x, grad)
    check(mine, step(eager, eager, x, grad), step(exact, exact, x.double(), grad.double()))
    assert len(backend.report.taken) == count, str(backend.report)


@pytest.mark.parametrize("name", MODELS)
def test_autocast(name: str, directory: Path) -> None:
    make, shape, count = MODELS[name]
    torch.manual_seed(0)
    eager = make().cuda()
    fused = copy.deepcopy(eager)
    backend = fusegen.Backend(directory)
    compiled = torch.compile(fused, backend=backend)
    x = torch.randn(shape, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        mine, theirs = compiled(x), eager(x)
    assert mine.dtype == theirs.dtype
    torch.testing.assert_close(mine, theirs, rtol=0.05, atol=0.05)
    mine.sum().backward()
    assert all(each.grad is not None for each in fused.parameters())
    assert len(backend.report.taken) == count, str(backend.report)


def test_fp32_split(directory: Path) -> None:
    torch.manual_seed(0)
    eager = Convolved(256).cuda()
    exact, fused = copy.deepcopy(eager).double(), copy.deepcopy(eager)
    backend = fusegen.Backend(directory, precision="fp32_split", choose="all")
    compiled = torch.compile(fused, backend=backend)
    x, grad = (torch.randn(3, 200, 256, device="cuda") for _ in range(2))
    mine = step(fused, compiled, x, grad)
    check(mine, step(eager, eager, x, grad), step(exact, exact, x.double(), grad.double()))
    assert [each.ops for each in backend.report.taken] == [("linear",)] * 2, str(backend.report)


def test_a_later_start_compiles_nothing(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fusegen.build import builder

    make, shape, count = MODELS["post_norm"]
    x = torch.randn(shape, device="cuda")
    torch.compile(make().cuda(), backend=fusegen.Backend(directory))(x)
    monkeypatch.setattr(builder._Build, "run", lambda *_: pytest.fail("it compiles"))
    torch._dynamo.reset()
    backend = fusegen.Backend(directory)
    torch.compile(make().cuda(), backend=backend)(x)
    assert len(backend.report.taken) == count, str(backend.report)


ALONE = """
import sys
import torch

model, x = torch.nn.Linear(8, 8).cuda(), torch.randn(4, 8, device="cuda")
program = torch.export.export(model, (x,))
torch._inductor.aoti_load_package(torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[1]))(x)
"""


def test_aot_inductor(directory: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", ALONE, str(tmp_path / "alone.pt2")]
    alone = subprocess.run(command, capture_output=True, text=True)
    if alone.returncode != 0:  # as on an H200 with torch 2.11
        pytest.skip(f"PyTorch's own programs end with {alone.returncode}: {alone.stderr[-200:]}")
    torch.manual_seed(0)
    model, x = Convolved(256).cuda().eval(), torch.randn(3, 200, 256, device="cuda")
    backend = fusegen.Backend(directory, precision="fp32_split", choose="all")
    rows = torch.export.Dim("rows", min=2, max=64)
    program = backend.export(torch.export.export(model, (x,), dynamic_shapes=({0: rows},)))
    assert [each.ops for each in backend.report.taken] == [("linear",)] * 2, str(backend.report)
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    run, exact = torch._inductor.aoti_load_package(path), copy.deepcopy(model).double()
    for each in (x, torch.randn(7, 200, 256, device="cuda")):
        torch.testing.assert_close(run(each).double(), exact(each.double()), rtol=1e-5, atol=1e-4)


def test_measured(tmp_path: Path) -> None:
    """Whatever the verdict is, it is one, and kept."""
    model, x = nn.Sequential(nn.Linear(512, 512), nn.BatchNorm1d(512), nn.GELU()).cuda(), torch.randn(2048, 512).cuda()
    for known in (False, True):
        torch._dynamo.reset()
        backend = fusegen.Backend(tmp_path / "fused", choose="measure")
        before = (tmp_path / "fused" / FILE).read_bytes() if known else b""
        torch.compile(model, backend=backend)(x).sum().backward()
        after = (tmp_path / "fused" / FILE).read_bytes()
        assert len(backend.report.taken) + len(backend.report.left) == 1 and (after == before) == known
        assert "PyTorch's 0." in str(backend.report) and "cannot be measured" not in str(backend.report)
