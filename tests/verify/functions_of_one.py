"""Every op of the catalogue that is a function of one value, as a chain of its own, found by what planning accepts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic import ValidationError

from fusegen.errors import SpecError
from fusegen.ops.catalogue import STEPS
from fusegen.ops.step import Step
from fusegen.plan.load import plan_file
from fusegen.plan.modules.plan import Plan
from fusegen.verify.checks.tails import applies

_SPEC = """\
fusegen: 1
name: {name}
about: One function
dims: {{batch: 4096, features: 64}}
arguments: {{}}
inputs: {{x: [batch, features]}}
dtypes: [float32, bfloat16, float16]
targets: [{target}]
chain:
  - {step}
"""
_VALUE = 0.75  # of a field without which there is no function


def functions_of_one(directory: Path, target: str = "sm_90") -> dict[str, Plan]:
    """By a name that says the op and the fields that are not defaults: its plan, whose spec is written there."""
    found = {}
    for cls in STEPS:
        for fields in _fields(cls):
            words = [str(value) if key == "op" else f"{key}_{value}" for key, value in fields.items()]
            name = "_".join(["only", *words]).replace(".", "_")
            path = directory / f"{name}.yaml"
            step = "{" + ", ".join(f"{key}: {value}" for key, value in fields.items()) + "}"
            path.write_text(_SPEC.format(name=name, target=target, step=step), encoding="utf-8")
            try:
                plan = plan_file(path)
            except SpecError:
                continue
            if applies(plan):
                found[name] = plan
    return found


def _fields(cls: type[Step]) -> Iterator[dict[str, object]]:
    """What an op may be given: its defaults with each value of what is a choice, and each optional field alone.

    Nothing for an op that cannot be without a name.
    """
    kinds = {key: field.annotation for key, field in cls.model_fields.items()}
    choices = {key: get_args(kind) for key, kind in kinds.items() if get_origin(kind) is Literal}
    for values in product(*choices.values()):
        given: dict[str, object] = dict(zip(choices, values, strict=True))
        required = [key for key, field in cls.model_fields.items() if field.is_required() and key not in choices]
        given |= dict.fromkeys(required, _VALUE)
        if not _accepts(cls, given):
            return
        yield given
        for key, field in cls.model_fields.items():
            if field.default is None and key not in choices:
                more = {**given, key: _VALUE}
                if _accepts(cls, more):
                    yield more


def _accepts(cls: type[Step], given: dict[str, object]) -> bool:
    try:
        cls.model_validate(given)
    except ValidationError:
        return False
    return True
