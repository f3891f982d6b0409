"""`state_dict` of a spec: names that the original has for layers and parameters."""

from __future__ import annotations

from pathlib import Path

import pytest

import fusegen
from fusegen.errors import SpecError
from fusegen.plan.load import planned_document
from fusegen.spec.yaml import parse_yaml

SPEC = """\
fusegen: 1
name: named
dims: {batch: 16, n: 8}
arguments: {n: {type: dim}}
inputs: {x: [batch, n]}
chain:
  - {op: linear, name: fc, out_features: n}
  - {op: layer_norm, name: norm}
  - {op: add, parameter: shift, shape: [n], init: zeros}
state_dict: STATE
"""


def planned(state: str):
    return planned_document(parse_yaml(SPEC.replace("STATE", state), "named.yaml"))


def test_paths_of_layers_norms_and_parameters() -> None:
    found = planned('{fc: net.0, norm: "1", shift: _own.shift}').spec.state_dict
    assert found == {"fc": "net.0", "norm": "1", "shift": "_own.shift"}


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        ("{foo: net.0}", "FG301", "no step has the name 'foo'"),
        ("{fc: a.b, norm: a.b}", "FG208", "'a.b' is the name of two"),
        ("{fc: norm}", "FG208", "'norm' is the name of two"),
        ("{fc: a..b}", "FG206", "'a..b' is no path"),
        ("{fc: 'a b'}", "FG206", "'a b' is no path"),
    ],
)
def test_refusals(state: str, code: str, words: str) -> None:
    with pytest.raises(SpecError) as raised:
        planned(state)
    assert any(each.code == code and words in each.message for each in raised.value.diagnostics)
    assert all(each.location is not None and each.location.line == 10 for each in raised.value.diagnostics)


def test_an_exported_file_has_such_names_too(tmp_path: Path) -> None:
    spec = tmp_path / "named.yaml"
    spec.write_text(SPEC.replace("STATE", "{fc: net.0}"))
    assert "net.0" in fusegen.export(spec)
