"""The JSON Schema takes what fusegen takes, and refuses what has another form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from fusegen.errors import SpecError
from fusegen.ops.catalogue import STEPS
from fusegen.reference.init import spec_text
from fusegen.reference.schema import schema, write_beside
from fusegen.spec.yaml import parse_yaml
from tests.emulate.other_chains import HAND_PICKED

ROOT = Path(__file__).resolve().parents[2]
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "specs").glob("*.yaml"))}
TEXTS |= {name: other.spec(name) for name, other in HAND_PICKED.items() if other.steps or other.linear}
TEXTS["my_chain"] = spec_text("my_chain")

VALIDATOR = Draft7Validator(schema())


def plain(text: str) -> dict:
    """As an editor reads it: what JSON has."""
    return json.loads(json.dumps(parse_yaml(text, "spec.yaml").data))


def test_it_is_a_schema() -> None:
    Draft7Validator.check_schema(schema())


@pytest.mark.parametrize("name", TEXTS)
def test_specs_are_accepted(name: str) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(plain(TEXTS[name]))] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("about:", "abuot:"),
        ("fusegen: 1", "fusegen: 2"),
        ("name: my_chain", "name: null"),
        ("hidden: 256", "hidden: -1"),
        ("[float32, bfloat16]", "[float32, float8]"),
        ("[sm_90]", "[sm_91]"),
        ("[sm_90]", "null"),
        ("{type: dim}", "{type: size}"),
        ("{op: gelu}", "{op: gelu, aproximate: tanh}"),
        ("{op: gelu}", "{op: gelu, approximate: tan}"),
        ("{op: gelu}", "{op: gleu}"),
        ("{op: gelu}", "{op: gelu, save: null}"),
        ("{op: gelu}", "{op: pow, exponent: factor}"),
        ("name: fc, ", ""),
        ("chain:", "steps:"),
    ],
)
def test_mistakes_of_form_are_marked(old: str, new: str) -> None:
    text = TEXTS["my_chain"]
    assert old in text
    assert list(VALIDATOR.iter_errors(plain(text.replace(old, new, 1))))


def test_every_op_says_what_it_computes() -> None:
    found = schema()["$defs"]
    for step in STEPS:
        assert found[step.__name__]["description"].startswith(step.formula_of(step.ops()[0]))


def test_it_is_written_only_if_it_differs(tmp_path: Path) -> None:
    path = write_beside(tmp_path)
    assert path is not None and json.loads(path.read_text(encoding="utf-8")) == schema()
    assert write_beside(tmp_path) is None
    path.write_text('{"title": "fusegen spec"}', encoding="utf-8")
    assert write_beside(tmp_path) == path


@pytest.mark.parametrize("data", [b"{}", b"[]", b"\xff", b"[" * 200_000])
def test_a_file_that_is_no_schema_is_not_replaced(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "fusegen.schema.json"
    path.write_bytes(data)
    with pytest.raises(SpecError, match="FG502.*is there already"):
        write_beside(tmp_path)
    assert path.read_bytes() == data and write_beside(tmp_path, overwrite=True) == path
