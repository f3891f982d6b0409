"""Plans of the specs in the repository and of small ones written out in a test."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from fusegen.plan.load import plan_file
from fusegen.plan.modules.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
COMPOSED = {"transformer_mlp_prenorm"}  # of several regions: a plan for each
SPECS = sorted({path.stem for path in (ROOT / "specs").glob("*.yaml")} - COMPOSED)

_TEXT = """\
fusegen: 1
name: demo
about: A demo
dims: {{{dims}}}
arguments: {{{arguments}}}
inputs: {{x: {shape}{inputs}}}
dtypes: [{dtypes}]
targets: [{targets}]
chain:
{chain}"""
_SIZES = {"batch": 16, "width": 32, "hidden": 64}
LINEAR = "op: linear, name: gemm, out_features: hidden"


@functools.cache
def committed(name: str) -> Plan:
    """The plan of a spec in specs/."""
    return plan_file(ROOT / "specs" / f"{name}.yaml")


def planned(
    directory: Path,
    *steps: str,
    arguments: str = "",
    inputs: str = "",
    shape: str = "[batch, width]",
    dtypes: str = "float32, bfloat16, float16",
    targets: str = "sm_90",
    modes: str = "",
) -> Plan:
    """The plan of a chain over x: [16, 32]; `hidden` is 64. Each step is the inside of its braces."""
    path = directory / "spec.yaml"
    chain = "".join(f"  - {{{step}}}\n" for step in steps)
    # Only symbols that something uses may be declared.
    used = [name for name in _SIZES if re.search(rf"\b{name}\b", chain + shape + inputs)]
    fields = {
        "dims": ", ".join(f"{name}: {_SIZES[name]}" for name in used),
        "arguments": ", ".join(f"{name}: {{type: dim}}" for name in used if name != "batch") + arguments,
        **{"shape": shape, "inputs": inputs, "dtypes": dtypes, "targets": targets},
    }
    listed = f"modes: [{modes}]\n" if modes else ""
    path.write_text(_TEXT.format(chain=chain, **fields) + listed, encoding="utf-8")
    return plan_file(path)
