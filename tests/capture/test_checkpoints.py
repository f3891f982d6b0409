"""Chains in what torch.utils.checkpoint runs: kernels in both runs of it, and the same numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.utils.checkpoint import (  # noqa: E402
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from tests.capture.models import PostNorm, Residual  # noqa: E402
from tests.capture.test_backend import Make, check, step  # noqa: E402


def products_stay(_: object, op: object, *args: object, **kwargs: object) -> CheckpointPolicy:
    is_product = op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if is_product else CheckpointPolicy.PREFER_RECOMPUTE


def selective() -> object:
    return create_selective_checkpoint_contexts(products_stay)


class Checkpointed(nn.Module):
    """Two blocks, each in a checkpoint; nested: both in another one."""

    def __init__(self, make: Callable[[], nn.Module], *, nested: bool = False, **options: object) -> None:
        super().__init__()
        self.first, self.second, self.nested, self.options = make(), make(), nested, options

    def forward(self, x: Tensor) -> Tensor:
        return self._run(self._both, x) if self.nested else self._both(x)

    def _both(self, x: Tensor) -> Tensor:
        return self._run(self.second, self._run(self.first, x))

    def _run(self, part: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        return checkpoint(part, x, use_reentrant=False, **self.options)


MODELS = {
    "post_norm": (lambda: Checkpointed(lambda: PostNorm(13)), (3, 7, 13), 2),
    "selective": (lambda: Checkpointed(lambda: PostNorm(13), context_fn=selective), (3, 7, 13), 2),
    "nested": (lambda: Checkpointed(lambda: PostNorm(13), nested=True), (3, 7, 13), 2),
    "images": (lambda: Checkpointed(lambda: Residual(6)), (3, 6, 7, 5), 4),
}


@pytest.mark.parametrize("name", MODELS)
def test_against_double_precision(backend: Make, name: str) -> None:
    make, shape, count = MODELS[name]
    torch.manual_seed(0)
    eager = make()
    exact, fused, other = (copy.deepcopy(eager) for _ in range(3))
    own = backend()
    x, grad = torch.randn(shape), torch.randn(shape)
    mine = step(fused, torch.compile(fused, backend=own), x, grad)
    theirs = step(eager, eager, x, grad)
    wanted = step(exact.double(), exact, x.double(), grad.double())
    # A second run in eager PyTorch moves running statistics again, and under torch.compile it does not.
    once = step(other, torch.compile(other, backend="aot_eager"), x, grad)
    for buffer, _ in eager.named_buffers():
        torch.testing.assert_close(mine.pop(buffer), once[buffer])
        del theirs[buffer], wanted[buffer]
    check(mine, theirs, wanted)
    assert len(own.report.taken) == count and not own.report.left, str(own.report)


def test_the_kernels_run_again(backend: Make) -> None:
    """What a checkpoint does not store is computed in the backward pass, by the op of the forward pass."""
    model = Checkpointed(lambda: PostNorm(13))
    compiled = torch.compile(model, backend=backend())
    x = torch.randn(3, 7, 13, requires_grad=True)
    compiled(x).sum().backward()
    with torch.profiler.profile() as profile:
        compiled(x).sum().backward()
    names = [event.name for event in profile.events() if event.name.startswith("fusegen::add_layer_norm")]
    assert sorted(name.split("_")[3] for name in names) == ["backward"] * 2 + ["forward"] * 4, names


def test_the_same_elements_are_dropped_again(backend: Make) -> None:
    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.scale = nn.LayerNorm(13, elementwise_affine=False), nn.Parameter(torch.ones(13))

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(lambda y: nn.functional.dropout(self.norm(y) * self.scale, 0.5), x, use_reentrant=False)

    model, own = Dropping(), backend()
    x = torch.randn(40, 13)
    y = torch.compile(model, backend=own)(x)
    y.sum().backward()
    kept = (y != 0).double()
    assert 0.4 < kept.mean() < 0.6 and own.report.taken[0].ops[-1] == "dropout"
    wanted = (nn.functional.layer_norm(x.double(), (13,)) * 2 * kept).sum(0)
    torch.testing.assert_close(model.scale.grad.double(), wanted, rtol=1e-4, atol=1e-4)


def test_autocast_around_a_checkpoint(backend: Make) -> None:
    class Inside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = PostNorm(13)

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return checkpoint(self.block, x, use_reentrant=False)

    torch.manual_seed(0)
    eager, own = Inside(), backend()
    fused = copy.deepcopy(eager)
    x, grad = torch.randn(3, 7, 13), torch.randn(3, 7, 13)
    mine, theirs = step(fused, torch.compile(fused, backend=own), x, grad), step(eager, eager, x, grad)
    for name, wanted in theirs.items():
        assert mine[name].dtype == wanted.dtype
        torch.testing.assert_close(mine[name], wanted, rtol=0.05, atol=0.05)
    assert len(own.report.taken) == 1, str(own.report)


def test_a_checkpoint_without_gradients_is_left(backend: Make) -> None:
    model, own = Checkpointed(lambda: PostNorm(13)).requires_grad_(False), backend()
    torch.compile(model, backend=own)(torch.randn(3, 7, 13))
    assert not own.report.taken and len(own.report.left) == 2, str(own.report)
