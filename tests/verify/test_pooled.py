"""Windows of pooling: the elements of each, and those of which rounding may choose another."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional as F  # noqa: E402

from fusegen.verify.runs.kinks import Kinks  # noqa: E402
from fusegen.verify.runs.pooled import Windows  # noqa: E402


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_windows_are_pytorchs(spatial) -> None:
    rng, compared = random.Random(spatial), 0
    for _ in range(40):
        x = torch.randn(2, 3, *(rng.randint(3, 9) for _ in range(spatial)))
        kernel = rng.randint(1, 3)
        options = (kernel, rng.randint(1, 3), rng.randint(0, kernel // 2), rng.randint(1, 2))
        pool, adaptive = (getattr(F, f"{kind}max_pool{spatial}d") for kind in ("", "adaptive_"))
        calls = [(pool, (x, *options)), (adaptive, (x, [rng.randint(1, size) for size in x.shape[2:]]))]
        for function, args in calls:
            try:
                wanted = function(*args)
            except RuntimeError:
                continue
            windows = Windows.of(function, args, {}, wanted)
            assert torch.equal(windows.elements(x, -torch.inf).amax(-1).reshape(wanted.shape), wanted)
            compared += 1
    assert compared > 40


def test_a_tie_is_near_and_moves_to_the_other_element() -> None:
    x = torch.tensor([[[1.0, 1.0 + 2**-22, 0.0, 5.0, 7.0, 2.0]]])
    windows = Windows.of(F.max_pool1d, (x, 2), {}, F.max_pool1d(x, 2))
    near, move = windows.ties(x, 1e-5)
    assert near.tolist() == [[[True, False, False]]]
    before, after = (F.max_pool1d(each, 2, return_indices=True)[1] for each in (x, x + move))
    assert before.tolist() == [[[1, 3, 4]]] and after.tolist() == [[[0, 3, 4]]]


def test_kinks_in_front_of_pooling_are_those_of_its_windows() -> None:
    x = torch.tensor([[[[0.0, 1.0, 2.0, 3.0]]]])
    with Kinks(torch.float32) as kinks:
        F.avg_pool2d(F.relu(x), (1, 2))
    assert kinks.near.tolist() == [[[[True, False]]]]
