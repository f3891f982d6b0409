"""The chains that people write: each is rendered, or refused for the stated reason."""

from __future__ import annotations

import ast
import re

import pytest

from fusegen.errors import SpecError
from fusegen.plan.load import planned_file
from fusegen.plan.modules.module import compiled
from fusegen.render.package import render_package
from fusegen.render.programs.launchers_header import symbol
from fusegen.render.python.regions import calls
from tests.chains.collection import BUILT, ENTRIES, REFUSED, Entry


def planned(entry: Entry, directory):
    path = directory / f"{entry.name}.yaml"
    path.write_text(entry.text(), encoding="utf-8")
    return planned_file(path)


@pytest.mark.parametrize("name", BUILT)
def test_is_rendered(name: str, tmp_path) -> None:
    """Each region with launchers of both directions for both dtypes; the reference names every layer and parameter."""
    plan = planned(BUILT[name], tmp_path)
    files = render_package(plan)
    for part in compiled([plan]):
        source = files[f"{part.spec.name}/kernels.cu"]
        assert all(f"FUSEGEN_LAUNCHER({symbol(part.spec.name, program)}," in source for program in part.programs)
        assert {mode.name for mode in part.modes} >= {"float32", "bfloat16"}
    module = files[f"{name}/__init__.py"]
    reference = module[module.index("def fusegen_reference") :]
    named = {step["name"] for step in BUILT[name].spec["chain"] if "name" in step and "constant" not in step}
    named |= {step["parameter"] for step in BUILT[name].spec["chain"] if "parameter" in step}
    assert named <= set(re.findall(r"self\.(\w+)", reference))


@pytest.mark.parametrize("name", BUILT)
def test_no_region_takes_a_value_that_is_gone(name: str, tmp_path) -> None:
    plan = planned(BUILT[name], tmp_path)
    if plan.single:
        return
    (function,) = ast.parse("\n ".join(["def chain():", *calls(plan)])).body
    assert isinstance(function, ast.FunctionDef)
    gone: set[str] = set()
    for statement in function.body:
        names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        assert gone.isdisjoint(names), ast.unparse(statement)
        if isinstance(statement, ast.Delete):
            gone |= names


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_before_anything_is_emitted(name: str, tmp_path) -> None:
    entry = REFUSED[name]
    code, words = entry.refused
    with pytest.raises(SpecError) as caught:
        planned(entry, tmp_path)
    found = [(each.code, each.message) for each in caught.value.diagnostics]
    assert any(each == code and words in message for each, message in found), found
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.yaml"]


def test_how_many_there_are() -> None:
    """43 of the public problems, all of which build; of 33 kinds 30 as a whole."""
    problems = {name for name, entry in BUILT.items() if entry.file == "kernelbench"}
    assert len(problems) == 43
    kinds = {entry.kind for entry in ENTRIES.values() if entry.file == "training"}
    whole = kinds - {entry.kind for entry in REFUSED.values()}
    assert len(kinds) == 33 and len(whole) >= 30
