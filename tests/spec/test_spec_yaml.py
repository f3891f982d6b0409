"""Reading: the data, the positions, and what is refused before anything else looks at it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fusegen.errors import Location, SpecError
from fusegen.spec.document import Document
from fusegen.spec.scalars import BadNumber, resolve
from fusegen.spec.yaml import MAX_BYTES, MAX_DEPTH, parse_yaml, read_yaml

TEXT = """\
# a comment
name: demo
dims: {batch: 8, features: 16}
chain:
  - {op: linear, eps: 1e-5}
  - op: silu
    save: "v"
empty:
"""


@pytest.fixture
def document() -> Document:
    return parse_yaml(TEXT, "demo.yaml")


def codes(error: SpecError) -> list[str]:
    return [diagnostic.code for diagnostic in error.diagnostics]


def errors_of(text: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        parse_yaml(text, "demo.yaml")
    return caught.value


def test_data(document: Document) -> None:
    assert document.data == {
        "name": "demo",
        "dims": {"batch": 8, "features": 16},
        "chain": [{"op": "linear", "eps": 1e-5}, {"op": "silu", "save": "v"}],
        "empty": None,
    }
    assert list(document.data["dims"]) == ["batch", "features"]


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        ((), 2, 1),
        (("name",), 2, 7),
        (("dims",), 3, 7),
        (("dims", "features"), 3, 28),
        (("chain",), 5, 3),
        (("chain", 0), 5, 5),
        (("chain", 0, "eps"), 5, 23),
        (("chain", 1), 6, 5),
        (("chain", 1, "save"), 7, 11),
        # A value that was left empty is where its key is.
        (("empty",), 8, 1),
    ],
)
def test_position_of_a_value(document: Document, path: tuple, line: int, column: int) -> None:
    assert document.location(path) == Location("demo.yaml", line, column)
    assert document.has(path)


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        (("name",), 2, 1),
        (("dims", "features"), 3, 18),
        (("chain", 0, "eps"), 5, 18),
        (("chain", 1, "save"), 7, 5),
    ],
)
def test_position_of_a_key(document: Document, path: tuple, line: int, column: int) -> None:
    assert document.key_location(path) == Location("demo.yaml", line, column)


def test_a_missing_path_has_its_nearest_parents_position(document: Document) -> None:
    assert document.location(("chain", 1, "eps", 3)) == document.location(("chain", 1))
    assert document.key_location(("chain", 1, "eps")) == document.location(("chain", 1))
    assert document.location(("nothing",)) == document.location(())
    assert not document.has(("chain", 1, "eps"))


def test_diagnostic_carries_its_line(document: Document) -> None:
    diagnostic = document.diagnostic("FG205", "no", ("chain", 1, "save"), key=True)
    assert diagnostic.render() == ('demo.yaml:7:5: error[FG205]: no\n        save: "v"\n        ^')


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_positions_do_not_depend_on_line_ends(line_break: str) -> None:
    document = parse_yaml(TEXT.replace("\n", line_break), "demo.yaml")
    assert document.location(("chain", 1, "save")) == Location("demo.yaml", 7, 11)
    assert document.lines[6] == '    save: "v"'


def test_columns_count_characters_not_bytes() -> None:
    document = parse_yaml('\ufeff{"ä漢": 1, b: 2}', "demo.yaml")
    assert document.location(("b",)).column == 14
    assert document.lines[0].startswith("{")
    # The wide character takes two columns of a terminal.
    caret = document.diagnostic("FG205", "no", ("b",)).render().splitlines()[-1]
    assert caret == " " * 4 + " " * 14 + "^"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None), ("~", None), ("null", None), ("true", True), ("FALSE", False), ("12", 12), ("-7", -7),
        ("+3", 3), ("012", 12), ("0o17", 15), ("0x1F", 31), ("1.5", 1.5), (".5", 0.5), ("1e-5", 1e-5),
        ("1.", 1.0), ("-9007199254740992", -(2**53)),
        # Text in YAML 1.2, though not in 1.1 or in Python.
        ("yes", "yes"), ("on", "on"), ("1_000", "1_000"), ("2020-01-01", "2020-01-01"), ("1:30", "1:30"),
        ("nan", "nan"), ("inf", "inf"), ("0b1", "0b1"), ("-0x1", "-0x1"), ("\u0663", "\u0663"),
    ],
)  # fmt: skip
def test_plain_scalars(text: str, value: object) -> None:
    assert resolve(text) == value
    assert type(resolve(text)) is type(value)


@pytest.mark.parametrize("text", [".nan", ".inf", "-.Inf", "1e400", "9007199254740993", "0x" + "f" * 9000, "9" * 9000])
def test_numbers_that_are_refused(text: str) -> None:
    with pytest.raises(BadNumber):
        resolve(text)


def test_quoted_numbers_are_text() -> None:
    assert parse_yaml("{a: '1', b: \"true\", c: ''}", "f").data == {"a": "1", "b": "true", "c": ""}


def test_a_key_may_hold_what_its_twin_does_not() -> None:
    error = errors_of("a: {x: 1}\na: {y: .nan, y: 2}\n")
    assert codes(error) == ["FG105", "FG109", "FG105"]


def test_lenient_leaves_what_can_be_left() -> None:
    document = parse_yaml("a: 1\na: 2\nb: &x 3\n", "f", lenient=True)
    assert document.data == {"a": 1, "b": 3}
    assert [problem.code for problem in document.problems] == ["FG105", "FG106"]
    with pytest.raises(SpecError):
        parse_yaml("a: [", "f", lenient=True)


def test_depth() -> None:
    fits = "a: " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)
    assert parse_yaml(fits, "f").data
    assert codes(errors_of("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH)) == ["FG107"]


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("missing.yaml", "."):
        with pytest.raises(SpecError) as caught:
            read_yaml(path)
        assert str(caught.value).startswith(f"{path}:1:1: error[FG101]: cannot read the file: ")
    with pytest.raises(SpecError):
        read_yaml("a\0b")


def test_a_file_that_is_not_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.yaml").write_bytes("a: ä\nb: x".encode() + b"\xff\n")
    with pytest.raises(SpecError) as caught:
        read_yaml("f.yaml")
    assert str(caught.value) == "f.yaml:2:5: error[FG102]: the file is not UTF-8 text"


def test_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    start = b"a: 1\n#"
    Path("f.yaml").write_bytes(start + b"x" * (MAX_BYTES - len(start)))
    assert read_yaml("f.yaml").data == {"a": 1}
    Path("f.yaml").write_bytes(start + b"x" * (MAX_BYTES - len(start) + 1))
    with pytest.raises(SpecError) as caught:
        read_yaml("f.yaml")
    assert codes(caught.value) == ["FG103"]


@pytest.mark.parametrize(
    "text", ["a: " + "[" * 100_000, "a: " + "{b: " * 50_000, "- " * 50_000, "a: &a [1]\n" + "b: *a\n" * 3000]
)
def test_hostile_files_are_refused_quickly(text: str) -> None:
    start = time.monotonic()
    errors_of(text)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "3", "- a", "'x'", "a: {", "a: 'x", "%YAML 1.1\n"])
def test_files_that_hold_no_mapping(text: str) -> None:
    errors_of(text)


def test_a_character_as_json_writes_it() -> None:
    assert parse_yaml(r'{"a": "\ud83d\ude00", "\ud83d\ude00": 1}', "f").data == {"a": "\U0001f600", "\U0001f600": 1}
    assert codes(errors_of(r'{"a": "\ude00\ud83d"}')) == ["FG104"]


def test_control_characters_do_not_reach_the_terminal() -> None:
    error = errors_of('"a\\e[31m": 1\n"a\\e[31m": 2\n')
    assert "\x1b" not in str(error)
    assert r"'a\x1b[31m'" in str(error)
