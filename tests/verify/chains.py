"""A small chain with every kind of result, emulated once for the tests of verification."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fusegen.plan.load import plan_file
from fusegen.plan.modules.module import module_of
from fusegen.render.output import write_files
from fusegen.render.package import render_all
from fusegen.verify.subjects.packages import open_subject
from fusegen.verify.subjects.subject import Subject

SPEC = """\
fusegen: 1
name: {name}
about: A chain of the tests
dims: {{batch: 64, in_features: 32, features: 48}}
arguments:
  in_features: {{type: dim}}
  features: {{type: dim}}
  divisor: {{type: float}}
inputs:
  x: [batch, in_features]
  residual: [batch, features]
dtypes: [float32]
chain:
  - {{op: linear, name: fc, out_features: features}}
  - {{op: mul, parameter: scale, shape: [features], init: randn}}
  - {{op: batch_norm, name: bn}}
  - {{op: add, input: residual}}
  - {{op: div, constant: divisor}}
  - {{op: silu}}
"""


AUTOCAST = """\
fusegen: 1
name: {name}
about: Layer norm of a product, in float32 under autocast
dims: {{batch: 64, features: 48}}
arguments:
  features: {{type: dim}}
inputs:
  x: [batch, features]
dtypes: [float32, bfloat16]
chain:
  - {{op: linear, name: fc, out_features: features}}
  - {{op: layer_norm, name: norm}}
"""


def emulated(
    root: Path, cache: Path, name: str, changes: Sequence[tuple[str, str, str]] = (), text: str = SPEC
) -> Subject:
    """The chain as a subject.

    cache: of what is compiled. changes: a file below the output directory, a text and what to put there
    instead. text: the spec's.
    """
    spec = root / f"{name}.yaml"
    spec.write_text(text.format(name=name), encoding="utf-8")
    plan = plan_file(spec)
    write_files(render_all([module_of(plan)]), root / name)
    for path, old, new in changes:
        file = root / name / path.format(name=name)
        before = file.read_text(encoding="utf-8")
        assert old in before, f"{path} has no {old!r}"
        file.write_text(before.replace(old, new), encoding="utf-8")
    return open_subject(module_of(plan), root / name, device="cpu", cache=cache, fresh=not changes)
