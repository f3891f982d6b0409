"""Whatever a spec says, it becomes a package or a SpecError that says what to change and where.

FUSEGEN_FUZZ=20000 looks at that many examples of each kind, from a new seed every time.
"""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusegen.errors import SpecError
from fusegen.ir.graph import verify
from fusegen.plan.load import planned_document
from fusegen.plan.modules.module import ModulePlan, compiled
from fusegen.render.package import Files, render_all
from fusegen.spec.yaml import parse_yaml
from tests.emulate.other_chains import HAND_PICKED
from tests.fuzz.chains import plausible
from tests.fuzz.claims import check_error
from tests.fuzz.mutations import as_text, mutated_data, mutated_text

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "specs").glob("*.yaml"))]
TEXTS += [
    HAND_PICKED[name].spec(name) for name in ("every_norm", "two_inputs", "reuse", "shapes", "constants", "activations")
]
DATA = [parse_yaml(text, "seed.yaml").data for text in TEXTS]

MORE = int(os.environ.get("FUSEGEN_FUZZ", "0"))


def runs(examples: int) -> settings:
    """The same examples on every run, but for FUSEGEN_FUZZ; none is kept, and a busy machine may be slow."""
    return settings(
        max_examples=MORE or examples,
        derandomize=not MORE,
        database=None,
        deadline=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )


def tried(text: str) -> tuple[ModulePlan, Files] | SpecError:
    """The plan and the package of a spec, or its error. Anything else that is raised fails the test."""
    try:
        plan = planned_document(parse_yaml(text, "spec.yaml", lenient=True))
    except SpecError as error:
        check_error(error, "spec.yaml", text)
        return error
    return plan, render_all([plan])


def check_package(plan: ModulePlan, files: Files, text: str) -> None:
    for variant in (variant for each in compiled([plan]) for variant in each.variants):
        tensors = [*variant.forward.outputs, *variant.backward.outputs]
        verify([tensor.node for tensor in tensors])
    assert render_all([planned_document(parse_yaml(text, "spec.yaml"))]) == files
    name = plan.spec.name
    ast.parse(files[f"{name}/__init__.py"])
    assert json.loads(files[f"{name}/plan.json"])["name"] == name
    for path in (f"{each.spec.name}/{file}" for each in compiled([plan]) for file in ("kernels.cu", "bindings.cpp")):
        assert all(files[path].count(left) == files[path].count(right) for left, right in ("()", "[]", "{}"))


@runs(350)
@given(mutated_data(DATA))
def test_changed_data(data: dict) -> None:
    text = as_text(data)
    result = tried(text)
    if not isinstance(result, SpecError):
        check_package(*result, text)


@runs(500)
@given(mutated_text(TEXTS))
def test_changed_text(text: str) -> None:
    tried(text)


@runs(300)
@given(plausible())
def test_chains_that_look_right(data: dict) -> None:
    text = as_text(data)
    result = tried(text)
    if not isinstance(result, SpecError):
        check_package(*result, text)


@runs(300)
@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_files_that_are_no_specs(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    from fusegen.plan.load import plan_file

    path = tmp_path_factory.getbasetemp() / "spec.yaml"
    path.write_bytes(content)
    with pytest.raises(SpecError) as caught:
        plan_file(path)
    check_error(caught.value, path.as_posix(), content.decode("utf-8", "replace"))


def test_most_chains_that_look_right_are() -> None:
    """Or the test above would say little."""
    outcomes: list[bool] = []

    @runs(100)
    @given(plausible())
    def count(data: dict) -> None:
        outcomes.append(not isinstance(tried(as_text(data)), SpecError))

    count()
    assert sum(outcomes) > len(outcomes) / 3
