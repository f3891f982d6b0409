"""Specs that are refused: each directory of cases/ holds a spec and the exact text of its errors, all at once.

To accept new texts, after reading the difference: FUSEGEN_ACCEPT=1 pytest tests/plan/test_refusals.py
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from fusegen.errors import CODES, SpecError
from fusegen.plan.load import plan_file
from tests.fuzz.claims import check_text

CASES = Path(__file__).parent / "cases"
OTHER_CASES = Path(__file__).parents[1] / "spec" / "cases"
# Of the output and the tools; and a file of more than 256 KiB, which test_spec_yaml.py writes.
ELSEWHERE = re.compile(r"FG(103|[57]\d\d)")


@pytest.mark.parametrize("case", sorted(path.name for path in CASES.iterdir()))
def test_errors_of_a_spec(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES / case)
    with pytest.raises(SpecError) as caught:
        plan_file("spec.yaml")
    text = f"{caught.value}\n"
    expected = CASES / case / "expected.txt"
    if os.environ.get("FUSEGEN_ACCEPT"):
        expected.write_text(text, encoding="utf-8", newline="\n")
    assert text == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", [*CASES.glob("*/expected.txt"), *OTHER_CASES.glob("*/expected.txt")], ids=str)
def test_what_every_text_keeps_to(path: Path) -> None:
    headers = [line for line in path.read_text(encoding="utf-8").splitlines() if "error[" in line]
    assert headers
    for header in headers:
        assert re.match(r"spec\.(yaml|tuning\.json):\d+:\d+: error\[FG\d{3}\]: \S", header), header
        check_text(header)


def test_every_code_has_a_case() -> None:
    texts = [path.read_text(encoding="utf-8") for each in (CASES, OTHER_CASES) for path in each.glob("*/expected.txt")]
    shown = {code for text in texts for code in re.findall(r"error\[(FG\d{3})\]", text)}
    assert shown == {code for code in CODES if not ELSEWHERE.match(code)}


def test_mistakes_of_all_rooms_come_together() -> None:
    """Of YAML, fields and names, of the chain, and of the planner: each on a line of its own."""
    text = (CASES / "everything_at_once" / "expected.txt").read_text(encoding="utf-8")
    found = re.findall(r"(?m)^spec\.yaml:(\d+):\d+: error\[(FG\d{3})\]", text)
    assert len({line for line, _ in found}) >= 12 and len({code for _, code in found}) >= 10


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read every file")
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text("fusegen: 1\n")
    Path("spec.yaml").chmod(0)
    with pytest.raises(SpecError, match=r"^spec\.yaml:1:1: error\[FG101\]: cannot read the file: Permission denied$"):
        plan_file("spec.yaml")
