"""Chains of the collection that are like none of the other tests', beside PyTorch's operators on the emulator."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from fusegen.plan.load import planned_file  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402
from tests.chains.collection import ENTRIES  # noqa: E402
from tests.emulate.suites import compared, emulated_suite  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

WIDE = ["gru_gate", "inverted_residual", "kb51", "kb84", "upsample_merge"]
NARROW = ["attention_weights", "conformer_convolution", "convnext_block", "film", "lora_linear", "preactivation_block"]
# Under autocast, too: a gate in 16 bits beside an input in float32.
BOTH = ["highway"]
# Rows, input features, channels, groups.
SHAPES = ((33, 70, 96, 6), (1, 24, 32, 4), (31, 37, 41, 1))


def suite_of(name: str, dtypes: list[str], root, cache) -> Suite:
    entry, name = ENTRIES[name], f"collected_{name}"  # else it may be a package that another test has emulated
    entry = replace(entry, spec={**entry.spec, "name": name})
    (root / f"{name}.yaml").write_text(entry.text(dtypes), encoding="utf-8")
    return emulated_suite(planned_file(root / f"{name}.yaml"), root, cache)


CASES = {
    **dict.fromkeys(WIDE, ["float32"]),
    **dict.fromkeys(NARROW, ["bfloat16"]),
    **dict.fromkeys(BOTH, ["float32", "bfloat16"]),
}


@pytest.mark.parametrize("name", CASES)
def test_beside_the_chain_in_pytorch(name: str, tmp_path, emulation_cache) -> None:
    """Results and every gradient, in training and evaluation."""
    suite = suite_of(name, CASES[name], tmp_path, emulation_cache)
    found, wrong = compared(suite, SHAPES)
    assert not wrong and len(found) >= 3 * 2 * 2
