"""What nothing refers to, and what a reference to nothing may have meant."""

from __future__ import annotations

import pytest

from fusegen.chain.references import References
from fusegen.spec.yaml import parse_yaml

TEXT = """\
chain:
  - {op: shift, by: offset}
  - {op: scale, name: [gain]}
inputs: {x: "batch by wdth"}
"""


def references(*unreadable: tuple[str | int, ...], text: str = TEXT) -> References:
    return References(parse_yaml(text, "f.yaml", lenient=True), unreadable)


def unused(found: References, *names: str) -> list[str]:
    return list(found.unused("argument", names))


def test_what_is_used_and_what_is_not() -> None:
    found = references()
    found.use("argument", "a")
    found.use("input", "b")
    assert unused(found, "a", "b", "c") == ["b", "c"]


def test_a_misspelt_reference_uses_what_it_meant() -> None:
    found = references()
    assert found.missing("argument", "offest", ["offset", "gain"]) == "did you mean 'offset'?"
    assert unused(found, "offset", "gain") == ["gain"]


def test_a_reference_to_nobody_knows_what_may_mean_any() -> None:
    found = references()
    assert found.missing("argument", "qqq", ["offset"]) is None
    assert unused(found, "offset") == [] and list(found.unused("input", ["x"])) == ["x"]


def test_words_that_may_stand_there_too() -> None:
    assert references().missing("argument", "rand", ["land"], words=["randn"]) == "did you mean 'randn'?"


@pytest.mark.parametrize(
    ("unreadable", "expected"),
    [
        ([], ["offset", "gain", "width"]),
        ([("chain", 0)], ["gain", "width"]),
        ([("chain", 1, "name")], ["offset", "width"]),
        ([("inputs", "x")], ["offset", "gain"]),
        ([("inputs",)], []),  # nobody knows what it would have used
        ([("chain", 0, "absent")], ["gain", "width"]),
    ],
)
def test_what_cannot_be_read_may_use_what_it_mentions(unreadable: list, expected: list[str]) -> None:
    assert unused(references(*unreadable), "offset", "gain", "width") == expected


def test_a_file_that_was_not_read_whole() -> None:
    """A key that stands twice is read once: the other may use anything."""
    assert unused(references(text=TEXT + "inputs: {}\n"), "offset", "gain") == []


def test_a_hint_is_cut_and_escaped() -> None:
    long = "x" * 63 + "\x1b"
    hint = references().missing("symbol", "x" * 63, [long])
    assert hint is not None and len(hint) < 70
