"""The chains that fusegen is developed against: their modules give the specs that were written by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from fusegen.importing.load import import_spec
from fusegen.importing.module import from_module
from fusegen.plan.load import plan_file
from fusegen.plan.modules.plan import Plan
from fusegen.plan.summary import summary
from tests.chains.originals import CHAINS, SEEDS
from tests.importing.modules import plan

ROOT = Path(__file__).resolve().parents[2]
# Smaller sizes, with which an import takes a moment.
_SMALL = {"16384": "6", "1024": "6", "8192": "32", "4096": "32", "256": "4"}


def at_size_of(text: str, written: Plan) -> str:
    """The text with the sizes that the spec was written for."""
    for name, size in written.spec.dims.items():
        text = re.sub(rf"(?m)^  {name}: \d+$", f"  {name}: {size}", text)
    for name, argument in written.spec.arguments.items():
        if argument.type == "int":
            text = re.sub(rf"(?m)^(  {name}: .*typical: )\d+", rf"\g<1>{argument.typical}", text)
    return text


def what_is_planned(made: Plan) -> dict[str, Any]:
    """All of a plan but the words about it."""
    return {key: value for key, value in summary(made).items() if key != "about"}


@pytest.mark.parametrize("name", [name for name in CHAINS if name not in SEEDS])
def test_the_plan_is_that_of_the_spec_written_by_hand(name: str) -> None:
    original, arguments = CHAINS[name], CHAINS[name].arguments(16, 24, 4)
    torch.manual_seed(0)
    text = from_module(original.module(*arguments), [torch.randn(6, 16)], arguments=arguments, name=name)
    written = plan_file(ROOT / "specs" / f"{name}.yaml")
    found = plan(at_size_of(text, written))
    assert what_is_planned(found) == what_is_planned(plan(_without_tuning(name)))
    assert found.spec.model_dump(exclude={"about_"}) == written.spec.model_dump(exclude={"about_"})


@pytest.mark.parametrize("name", SEEDS)
def test_the_examples(name: str, tmp_path: Path) -> None:
    text = (ROOT / "examples" / "modules" / f"{name}.py").read_text(encoding="utf-8")
    assert any(size in text for size in _SMALL)
    model = tmp_path / f"{name}.py"
    model.write_text(re.sub(r"\b\d+\b", lambda size: _SMALL.get(size[0], size[0]), text), encoding="utf-8")
    output = tmp_path / "specs" / f"{name}.yaml"
    import_spec(f"{model}:Model", "get_init_inputs", "get_inputs", output, overwrite=False)
    found = output.read_text(encoding="utf-8")
    written = plan_file(ROOT / "specs" / f"{name}.yaml")
    made = plan(at_size_of(found, written))
    assert what_is_planned(made) == what_is_planned(plan(_without_tuning(name)))
    assert made.spec.model_dump(exclude={"about_"}) == written.spec.model_dump(exclude={"about_"})
    assert f"# Imported from Model in {name}.py.\nfusegen: 1\n" in found


def _without_tuning(name: str) -> str:
    return (ROOT / "specs" / f"{name}.yaml").read_text(encoding="utf-8")
