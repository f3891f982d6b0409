"""An import that is wrong is seen when its module is compared with the original."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from fusegen.aten import table as aten
from fusegen.errors import SpecError
from fusegen.importing import module
from fusegen.importing.drafts import spec_draft
from fusegen.importing.load import import_spec
from fusegen.importing.reading.values import Number, Value, Values
from tests.importing.modules import Source, imported

SOURCE = Source(
    "self.n = nn.LayerNorm(m)\nself.p = nn.Parameter(torch.ones(m))\nself.b = nn.BatchNorm1d(m)",
    "return torch.relu(self.b(self.n(y) * self.p) - 0.5)",
)


def changed(change: Callable[[Value], dict]) -> Callable[[Value, Values], Value]:
    """In place of `recognised`: every value with some of its fields changed."""

    def walk(value: Value, values: Values) -> Value:
        operands = tuple(walk(each, values) if isinstance(each, Value) else each for each in value.operands)
        fields = {"op": value.op, "operands": operands, "keys": value.keys, "name": value.name} | change(value)
        return values.make(**fields, layout=value.layout, place=value.place)

    return walk


def keys(op: str, **new: object) -> Callable[[Value], dict]:
    return lambda value: {"keys": {**value.keys, **new}} if value.op == op else {}


WRONG = {
    "another eps": keys("layer_norm", eps=Number(1e-6)),
    "another momentum": keys("batch_norm", momentum=Number(0.2)),
    "another op": lambda value: {"op": "silu"} if value.op == "relu" else {},
    "the operands swapped": lambda value: {"operands": value.operands[::-1]} if value.op == "sub" else {},
    "another number": lambda value: {"operands": (value.operands[0], Number(0.25))} if value.op == "sub" else {},
    "another kink": lambda value: {"op": "clamp", "keys": {"min": Number(1e-3)}} if value.op == "relu" else {},
}


def test_it_is_right_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "recognised", changed(lambda value: {}))
    assert "layer_norm" in imported(SOURCE)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_step_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "recognised", changed(WRONG[name]))
    with pytest.raises(SpecError, match="FG708"):
        imported(SOURCE)


def test_a_norm_without_its_weight_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "recognised", changed(keys("layer_norm", affine=False)))
    monkeypatch.setattr(spec_draft, "_check_state", lambda *_: None)
    with pytest.raises(SpecError, match=r"FG708.*the state_dict has n.bias, n.weight on one side alone"):
        imported(SOURCE)


def test_a_wrong_table_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(aten.FUNCTIONS, "relu", aten.Function("abs"))
    with pytest.raises(SpecError, match=r"FG708.*output is another one in training"):
        imported(SOURCE)


def test_a_gradient_alone_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """detach changes no output."""
    source = Source("", "return y.tanh() + y.detach()")
    assert "detach: true" in imported(source)
    monkeypatch.setattr(module, "recognised", lambda value, values: _attached(value, values))
    with pytest.raises(SpecError, match=r"FG708.*gradient"):
        imported(source)


def _attached(value: Value, values: Values) -> Value:
    operands = tuple(_attached(each, values) if isinstance(each, Value) else each for each in value.operands)
    if value.op == "detach":
        assert isinstance(operands[0], Value)
        return operands[0]
    return values.make(value.op, operands, value.keys, value.name, value.layout, value.place)


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(sys.modules)
    imported(SOURCE)
    assert not [name for name in set(sys.modules) - before if "fusegen_" in name]
    assert not list(tmp_path.glob("fusegen*"))  # torch's compiler has a directory of its own there


def test_what_others_put_among_the_modules_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """load_file keeps the user's module by such a name, and sys.modules may hold anything."""
    others = {"_fusegen_imported_model": ModuleType("model"), "_fusegen_none": None, "_fusegen_object": object()}
    for name, other in others.items():
        monkeypatch.setitem(sys.modules, name, other)
    imported(SOURCE)
    assert {name: sys.modules[name] for name in others} == others


def test_nothing_is_written_where_it_differs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    functions = "def get_inputs():\n    return [torch.randn(4, 16)]\n"
    model.write_text(f"import torch\nfrom torch import nn\n\n\n{SOURCE.text}\n\n{functions}", encoding="utf-8")
    monkeypatch.setitem(aten.FUNCTIONS, "relu", aten.Function("abs"))
    output = tmp_path / "specs" / "a.yaml"
    with pytest.raises(SpecError, match="FG708"):
        import_spec(f"{model}:Model", "get_init_inputs", "get_inputs", output, overwrite=False)
    assert not output.parent.exists()
    monkeypatch.undo()
    import_spec(f"{model}:Model", "get_init_inputs", "get_inputs", output, overwrite=False)
    assert "{op: relu}" in output.read_text(encoding="utf-8")
    assert torch.is_grad_enabled()
