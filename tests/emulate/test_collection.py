"""Chains of the collection that are like none of the other tests', beside PyTorch's operators on the emulator."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.plan.composition import Composition  # noqa: E402
from fusegen.plan.load import planned_file  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.verify.composed import ComposedSubject, ComposedSuite  # noqa: E402
from fusegen.verify.subject import Subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402
from tests.chains.collection import ENTRIES  # noqa: E402

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
    plan = planned_file(root / f"{name}.yaml")
    write_files(render_all([plan]), root)
    package = emulate_package(root / name, cache=cache)
    if isinstance(plan, Composition):
        return ComposedSuite(ComposedSubject(plan, package, "cpu"), full=False)
    return Suite(Subject(plan, package, "cpu"), full=False)


CASES = {
    **dict.fromkeys(WIDE, ["float32"]),
    **dict.fromkeys(NARROW, ["bfloat16"]),
    **dict.fromkeys(BOTH, ["float32", "bfloat16"]),
}


@pytest.mark.parametrize("name", CASES)
def test_beside_the_chain_in_pytorch(name: str, tmp_path, emulation_cache) -> None:
    """Results and every gradient, in training and evaluation."""
    suite = suite_of(name, CASES[name], tmp_path, emulation_cache)
    found = [finding for mode in suite.modes() for finding in suite.numerics(mode, SHAPES)]
    wrong = [f"{each.shape} {each.mode} {each.item.name}: {each.item.note}" for each in found if not each.item.ok]
    assert not wrong and len(found) >= 3 * 2 * 2
