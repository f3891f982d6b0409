"""Error goldens: each directory of cases/ holds a spec and the exact text of its errors.

To accept new texts, after reading the difference: FUSEGEN_ACCEPT=1 pytest tests/spec/test_spec_cases.py
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from spec_steps import Spec

from fusegen.errors import CODES, SpecError
from fusegen.spec.validate import load

CASES = Path(__file__).parent / "cases"
# Codes that only later rooms raise, or that need a file that is not text: tests/plan/cases has those.
ELSEWHERE = re.compile(r"FG(10[123]|210|[34567]\d\d)")


@pytest.mark.parametrize("case", sorted(path.name for path in CASES.iterdir()))
def test_errors_of_a_spec(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES / case)
    with pytest.raises(SpecError) as caught:
        load(Spec, "spec.yaml")
    text = f"{caught.value}\n"
    expected = CASES / case / "expected.txt"
    if os.environ.get("FUSEGEN_ACCEPT"):
        expected.write_text(text, encoding="utf-8", newline="\n")
    assert text == expected.read_text(encoding="utf-8")


def test_every_code_of_this_room_has_a_case() -> None:
    shown = {code for path in CASES.glob("*/expected.txt") for code in re.findall(r"FG\d{3}", path.read_text("utf-8"))}
    assert {code for code in CODES if not ELSEWHERE.match(code)} == shown


@pytest.mark.parametrize("case", sorted(path.name for path in CASES.iterdir()))
def test_messages_name_no_types(case: str) -> None:
    text = (CASES / case / "expected.txt").read_text(encoding="utf-8")
    headers = "\n".join(line for line in text.splitlines() if "error[" in line)
    internal = r"\b(str|dict|tuple|NoneType|ScalarNode|pydantic|validat\w+|Literal|Input should)\b|function-after"
    assert not re.search(internal, headers)
