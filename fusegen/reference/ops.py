"""The catalogue as text: for `fusegen ops`."""

from __future__ import annotations

import inspect

from fusegen.errors import Diagnostic, SpecError
from fusegen.ops.catalogue import STEPS
from fusegen.ops.lacking import unknown_op
from fusegen.ops.step import Step
from fusegen.reference.keys import Key, keys_of
from fusegen.spec.annotations import fields
from fusegen.spec.text import flow

_OF_EVERY_STEP = tuple(fields(Step))


def step_keys(step: type[Step]) -> list[Key]:
    """The keys of a step but `op`: those that have to be there first, those of every step last."""
    return sorted(keys_of(step, ("op",)), key=lambda key: (key.name in _OF_EVERY_STEP, not key.required))


def own_keys(step: type[Step]) -> list[Key]:
    """The keys of a step, but `op` and the keys that every step has."""
    return [key for key in step_keys(step) if key.name not in _OF_EVERY_STEP]


def known_ops() -> dict[str, type[Step]]:
    return {op: step for step in STEPS for op in step.ops()}


def listing() -> str:
    """A line for each op: its name, its formula, its keys with their defaults."""
    rows = [(op, step.formula_of(op), _short(step)) for op, step in known_ops().items()]
    width, wide = (max(len(row[column]) for row in rows) for column in (0, 1))
    lines = [f"{op:{width}}  {formula:{wide}}  {keys}".rstrip() for op, formula, keys in rows]
    return "\n".join(
        [*lines, "", "x is the running value. `fusegen ops OP` says more of one, docs/spec.md of the whole format.", ""]
    )


def _short(step: type[Step]) -> str:
    """The keys in a few words: one without a default stands alone, and with a question mark where it may be absent."""
    texts = []
    for key in own_keys(step):
        absent = "" if key.required else "?"
        texts.append(f"{key.name}{absent}" if key.default is None else f"{key.name}={key.default}")
    return ", ".join(texts)


def details(op: str) -> str:
    """What one op computes, its keys, and a step with it. Raises SpecError for an op that is not there."""
    known = known_ops()
    if op not in known:
        message, hint = unknown_op(op, list(known))
        raise SpecError([Diagnostic("FG203", message, hint=hint)])
    step = known[op]
    lines = [f"{op}: {step.formula_of(op)}", *remarks(step), ""]
    keys = step_keys(step)
    width = max(len(key.name) for key in keys)
    presence = max(len(key.presence) for key in keys)
    lines += [f"  {key.name:{width}}  {key.presence:{presence}}  {key.about} ({key.value})" for key in keys]
    return "\n".join([*lines, "", f"  - {example(op)}", ""])


def remarks(step: type[Step]) -> list[str]:
    """What there is to say beside the formula."""
    own = step.__dict__.get("__doc__")
    found = [" ".join(inspect.cleandoc(own).split())] if own else []
    if step.autocast != "as it is":
        found.append(f"Under autocast in {step.autocast}.")
    if step.matrix_only != "never":
        condition = "" if step.matrix_only == "always" else f" {step.matrix_only}"
        takes_rows = step.over_leading_dimensions is not Step.over_leading_dimensions
        over = ", [..., channels]" if takes_rows else ""
        over += "" if step.model_construct(dim=1).not_over_positions() else ", or [batch, channels, positions]"
        found.append(f"Takes [rows, channels]{over or ' alone'}{condition}.")
    return found


def example(op: str) -> str:
    """A step with the keys that have to be there and the first of the others, as YAML."""
    step = known_ops()[op]
    keys = own_keys(step)
    shown: list[Key] = [key for key in keys if key.required] + [key for key in keys if not key.required][:1]
    if "parameter" in step.model_fields:
        shown = [key for key in keys if key.name in ("parameter", "shape", "init")]
    return "{" + ", ".join([f"op: {flow(op)}", *(f"{key.name}: {key.example}" for key in shown)]) + "}"
