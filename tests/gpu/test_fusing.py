"""A model with replaced modules on a GPU: the kernels run, and it trains as the original does."""

from __future__ import annotations

import copy
import warnings

import pytest

torch = pytest.importorskip("torch")

import fusegen  # noqa: E402
from tests.fusing.models import losses, made  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc, pytest.mark.gpu]
WIDTH = 64


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory):
    """A replaced model, its original, and an input."""
    model, _ = made(WIDTH)
    model.cuda()
    original, x = copy.deepcopy(model), torch.randn(200, WIDTH, device="cuda")
    report = fusegen.fuse(model, x, directory=tmp_path_factory.mktemp("fused"))
    assert len(report.replaced) == 4
    return model, original, x


@pytest.fixture
def fused(case):
    model, original, x = case
    return copy.deepcopy(model), copy.deepcopy(original), x


def regions(model) -> list:
    return [each for part in model.modules() for each in vars(part).get("_fusegen_regions", ())]


def test_the_kernels_run(fused) -> None:
    """With a warning as an error, nothing else can."""
    model, _, x = fused
    assert len(regions(model)) == 4
    for each in regions(model):
        each.fusegen_strict = True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(x).sum().backward()


def test_the_same_training(fused) -> None:
    model, original, x = fused
    torch.testing.assert_close(losses(model, [x]), losses(original, [x]), rtol=1e-4, atol=0)


def test_autocast(fused) -> None:
    model, original, x = fused
    with torch.autocast("cuda", torch.bfloat16):
        ours, theirs = model(x), original(x)
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.05)


def test_after_moves(fused) -> None:
    """To the CPU, where the original runs, and back."""
    model, original, x = fused
    torch.testing.assert_close(model.cpu().eval()(x.cpu()), original.cpu().eval()(x.cpu()))
    torch.testing.assert_close(model.cuda()(x), original.cuda()(x), rtol=1e-4, atol=1e-4)


def test_a_second_call_compiles_nothing(case, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once built, a key decides."""
    from fusegen.build import builder

    monkeypatch.setattr(builder._Build, "run", lambda *_: pytest.fail("it compiles"))
    model, original, x = case
    directory = regions(model)[0]._fusegen_package.library.parents[2]
    again = copy.deepcopy(original)
    assert len(fusegen.fuse(again, x, directory=directory).replaced) == 4
    torch.testing.assert_close(again.eval()(x), copy.deepcopy(original).eval()(x), rtol=1e-4, atol=1e-4)
