"""The layers of exported files that give images other sizes, beside PyTorch's."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import pytest

from fusegen.paths import templates_directory
from tests.plan.test_upsampling import drawn, layer_of

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_layers_are_pytorchs(spatial) -> None:
    path = Path(templates_directory()) / "standalone" / "support" / "upsampling.py"
    spec = importlib.util.spec_from_file_location("standalone_upsampling", path)
    layers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(layers)
    rng, compared = random.Random(spatial), 0
    for _ in range(60):
        step = drawn(rng, spatial)
        text = "".join(step.construct_over(4, spatial)).removeprefix("self.up = ")
        x = torch.rand(2, 4, *(2 * rng.randint(2, 5) for _ in range(spatial)))
        wanted = layer_of(step, spatial)(x)
        torch.testing.assert_close(eval(text, {"nn": layers})(x), wanted)
        compared += 1
    assert compared == 60
