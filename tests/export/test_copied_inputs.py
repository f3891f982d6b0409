"""`fusegen export --inputs-from`: what is copied of the original's file, and what cannot be."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import fusegen
from fusegen.errors import SpecError
from fusegen.standalone.copied_inputs import inputs_of_file
from tests.cli.test_cli import SPEC

MODEL = '''\
import functools
import math

import os

batch = 3
size = int(math.sqrt(batch * 12))
size *= 2
shape = [0, size]
shape[0] = batch
if batch > 2:
    scale = 2.0
else:
    scale = 1.0
unused = os.sep
x = open("absent")


class Model:
    """Not copied."""


@functools.cache
def make(width):
    """In a forward pass it would be caf\u00e9."""
    return ["made", width]  # to pass on


def get_inputs():
    x = make(size)
    return [x, shape, "caf\u00e9"]


def get_init_inputs():
    return [size, 4, scale, 0.1]


if __name__ == "__main__":
    scale = Model()
'''


def copied(tmp_path: Path, text: str) -> dict[str, Any]:
    """The names of the statements that are copied from a file with this text, as an exported file has them."""
    path = tmp_path / "model.py"
    path.write_text(text, encoding="utf-8")
    exported = fusegen.export(SPEC, inputs_from=path).partition("# ---- Inputs")[2].partition("\n")[2]
    names: dict[str, Any] = {}
    exec(exported, names)
    assert exported.isascii() and "pass" not in exported
    return names


def test_what_the_functions_need(tmp_path: Path) -> None:
    names = copied(tmp_path, MODEL)
    assert names["get_inputs"]() == [["made", 12], [3, 12], "caf\u00e9"]
    assert names["get_init_inputs"]() == [12, 4, 2.0, 0.1]
    assert names.keys().isdisjoint({"os", "unused", "x", "Model"})


def test_one_function_is_enough(tmp_path: Path) -> None:
    assert copied(tmp_path, "def get_init_inputs():\n    return [1]\n")["get_init_inputs"]() == [1]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("from .sizes import a\ndef get_inputs():\n    return [a]\n", 1, "relative"),
        ("try:\n    a = 1\nexcept ValueError:\n    a = 2\ndef get_inputs():\n    return [a]\n", 1, "try"),
        ("a = 1\ndef get_inputs():\n    if a:\n        pass\n    return [a]\n", 2, "'pass'"),
        ("def get_inputs():\n    return ['a pass']\n", 1, "'pass'"),
        ("\u00e9 = 1\ndef get_inputs():\n    return [\u00e9]\n", 1, "ASCII"),
        ("def get_inputs():\n    return [r'\u00e9']\n", 1, "ASCII"),
        ("a = __file__\ndef get_inputs():\n    return [a]\n", 1, "__file__"),
    ],
)
def test_what_cannot_be_copied(text: str, line: int, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(text, encoding="utf-8")
    ast.parse(text)
    with pytest.raises(SpecError, match=reason) as raised:
        inputs_of_file(path)
    assert f"model.py:{line}:1" in str(raised.value)
