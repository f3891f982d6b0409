"""The pooling layers of exported files, beside PyTorch's."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import pytest

from fusegen.paths import templates_directory
from tests.plan.test_pooling import drawn

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def layers():
    path = Path(templates_directory()) / "standalone" / "support" / "pooling.py"
    spec = importlib.util.spec_from_file_location("standalone_pooling", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_layers_are_pytorchs(layers, spatial) -> None:
    rng, compared = random.Random(spatial), 0
    for _ in range(60):
        step, theirs = drawn(rng, spatial)
        text = "".join(step.construct_over(4, spatial)).removeprefix("self.pool = ")
        mine, x = eval(text, {"nn": layers}), torch.rand(2, 3, *(rng.randint(4, 9) for _ in range(spatial)))
        try:
            wanted = theirs(x)
        except RuntimeError:
            continue
        torch.testing.assert_close(mine(x), wanted)
        compared += 1
    assert compared > 40
