"""A spec to start from, with a comment for every key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic_core import PydanticCustomError

from fusegen.errors import Diagnostic, SpecError
from fusegen.files import refuse_output, write_output, writing
from fusegen.paths import DEFAULT_SPECS
from fusegen.reference.keys import keys_of
from fusegen.reference.ops import known_ops
from fusegen.reference.schema import COMMENT, write_beside
from fusegen.spec.annotations import fields
from fusegen.spec.model import SpecModel
from fusegen.spec.names import check_spec_name
from fusegen.spec.text import entry, remark

_STEPS: tuple[dict[str, Any], ...] = (
    {"op": "linear", "name": "fc", "out_features": "hidden"},
    {"op": "batch_norm", "name": "norm"},
    {"op": "add", "parameter": "shift", "shape": ["hidden"], "init": "zeros"},
    {"op": "mul", "constant": "factor"},
    {"op": "gelu"},
)
# Of these a spec to start from does well without.
_LEFT_OUT = ("class", "outputs", "rewrites", "invariant", "state_dict")


def spec_text(name: str) -> str:
    """The spec. Its values are the examples of the models."""
    examples = {key: field.examples[0] for key, field in fields(SpecModel).items() if field.examples}
    formulas = [known_ops()[step["op"]].formula_of(step["op"]) for step in _STEPS]
    lines = [COMMENT, "# `fusegen ops` lists what a step may be; `fusegen plan` says what becomes of the chain."]
    for key in keys_of(SpecModel, _LEFT_OUT):
        about = remark(f"{key.about[0].upper()}{key.about[1:]}.")
        value = {"name": name, "chain": _STEPS}.get(key.name, examples[key.name])
        lines += ["", about, *entry(key.name, value, formulas if key.name == "chain" else ())]
    return "\n".join([*lines, ""])


def write_spec(name: str, directory: Path = DEFAULT_SPECS, *, overwrite: bool = False) -> list[Path]:
    """Writes <name>.yaml and the schema that it names, and returns what was written. Raises SpecError, also rather than
    replace a spec, or another file in the schema's place, without `overwrite`."""
    try:
        check_spec_name(name)
    except PydanticCustomError as error:
        raise SpecError([Diagnostic("FG206", error.message())]) from None
    path = directory / f"{name}.yaml"
    refuse_output(path, overwrite=overwrite)
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    schema = write_beside(directory, overwrite=overwrite)
    write_output(path, spec_text(name), overwrite=overwrite)
    return [path, *([schema] if schema else [])]
