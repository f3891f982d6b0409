"""Chains that are refused: each directory of cases/ holds a spec and the exact text of its errors.

To accept new texts, after reading the difference: FUSEGEN_ACCEPT=1 pytest tests/plan/test_refusals.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fusegen.errors import SpecError
from fusegen.plan.load import plan_file
from tests.plan.planning import LINEAR, planned

CASES = Path(__file__).parent / "cases"


@pytest.mark.parametrize("case", sorted(path.name for path in CASES.iterdir()))
def test_errors_of_a_chain(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES / case)
    with pytest.raises(SpecError) as caught:
        plan_file("spec.yaml")
    text = f"{caught.value}\n"
    expected = CASES / case / "expected.txt"
    if os.environ.get("FUSEGEN_ACCEPT"):
        expected.write_text(text, encoding="utf-8", newline="\n")
    assert text == expected.read_text(encoding="utf-8")


def test_every_error_has_a_place_in_the_file() -> None:
    for path in CASES.glob("*/expected.txt"):
        headers = [line for line in path.read_text(encoding="utf-8").splitlines() if "error[" in line]
        assert headers and all(line.startswith("spec.yaml:") for line in headers), path.parent.name


@pytest.mark.parametrize(
    "steps",
    [
        ["op: linear, name: gemm, out_features: hiden", "op: relu"],
        [LINEAR, "op: layer_norm, name: gemm"],
    ],
    ids=["unknown symbol", "one name twice"],
)
def test_a_mistake_in_the_first_step_is_told_before_what_follows_it(tmp_path, steps: list[str]) -> None:
    with pytest.raises(SpecError):
        planned(tmp_path, *steps)


@pytest.mark.parametrize("name", ["forward", "training", "weights_only", "F", "torch", "nn"])
@pytest.mark.parametrize("step", ["op: linear, name: {}, out_features: hidden", "op: batch_norm, name: {}"])
def test_names_that_the_module_needs_itself(tmp_path, name: str, step: str) -> None:
    if name == "weights_only":
        planned(tmp_path, step.format(name))
        return
    with pytest.raises(SpecError):
        planned(tmp_path, step.format(name))
