"""`get_inputs` and `get_init_inputs` of a standalone file: copied from the file of the original, or by the spec."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path

from fusegen.errors import Diagnostic, SpecError
from fusegen.plan.plan import Plan

_WANTED = ("get_inputs", "get_init_inputs")


@dataclass(frozen=True)
class Inputs:
    """Statements of the file. about: where they come from."""

    about: str
    lines: list[str] = field(default_factory=list)


def inputs_of_spec(plan: Plan) -> Inputs:
    """Random tensors of the sizes that the spec plans for; arguments where the spec has a value for each."""
    spec, sizes = plan.spec, plan.spec.dims
    made = [f"torch.randn({', '.join(str(sizes.get(d, d)) for d in tensor.shape)})" for tensor in plan.chain.inputs]
    lines = ["def get_inputs():", f"    return [{', '.join(made)}]"]
    values = []
    for name, argument in spec.arguments.items():
        value = sizes.get(name) if argument.type == "dim" else getattr(argument, "default", None)
        value = getattr(argument, "typical", None) if value is None else value
        values.append(list(value) if isinstance(value, tuple) else value)
    if None not in values:
        lines += ["", "", "def get_init_inputs():", f"    return {values!r}"]
    return Inputs("of the sizes that the spec plans for", lines)


def inputs_of_file(path: Path) -> Inputs:
    """The two functions of a Python file, with the top-level statements that they need. The file is not run.

    Raises SpecError where it cannot be read, or has neither.
    """
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError) as error:
        raise SpecError([Diagnostic("FG101", f"cannot read {path}: {error}")]) from error
    defined = {name: node for node in tree.body for name in _names(node)}
    found = [name for name in _WANTED if isinstance(defined.get(name), ast.FunctionDef)]
    if not found:
        raise SpecError([Diagnostic("FG510", f"{path} has neither get_inputs() nor get_init_inputs()")])
    needed: set[int] = set()
    queue = [defined[name] for name in found]
    while queue:
        node = queue.pop()
        if id(node) in needed:
            continue
        needed.add(id(node))
        used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        queue += [defined[name] for name in used if name in defined]
    parts = [node for node in tree.body if id(node) in needed]
    lines: list[str] = []
    for node in parts:
        lines += ["", ""] if lines and isinstance(node, ast.FunctionDef) else []
        lines += (ast.get_source_segment(text, node) or "").splitlines()
    return Inputs("as the file of the original has them", lines)


def _names(node: ast.stmt) -> list[str]:
    """What a top-level statement gives a name to."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
    return []
