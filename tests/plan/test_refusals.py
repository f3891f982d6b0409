"""Chains that are refused: each directory of cases/ holds a spec and the exact text of its errors.

To accept new texts, after reading the difference: FUSEGEN_ACCEPT=1 pytest tests/plan/test_refusals.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fusegen.errors import SpecError
from fusegen.plan.load import plan_file

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
