"""Results of one value a row, losses and norms of blocks, with further inputs, more dimensions and several regions."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.plan.load import planned_file  # noqa: E402
from fusegen.plan.sizes.chain_sizes import SMALL  # noqa: E402
from fusegen.plan.sizes.module_sizes import several  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

HEAD = """
fusegen: 1
name: {name}
about: a chain of the tests
dtypes: [float32]
"""
SPECS = {
    # A value of the first pass, of which only the result is made, in another pass, with an input of one a row.
    "two_of_a_row": """
dims: {batch: 64, features: 16}
arguments: {features: {type: dim}}
inputs: {x: [batch, features], m: [batch, features], r: [batch, 1]}
chain:
  - {op: tanh, save: t}
  - {op: sum, keepdim: true, save: total}
  - {op: masked_fill, from: t, mask: m, constant: -2}
  - {op: logsumexp, keepdim: true}
  - {op: add, value: total}
  - {op: mul, input: r}
""",
    # Rows of two dimensions: a weight of blocks, an input that comes again and again, a result without channels.
    "rows_of_a_sequence": """
dims: {batch: 8, seq: 8, features: 16, hidden: 24, head: 4}
arguments: {features: {type: dim}, hidden: {type: dim}, head: {type: dim}}
inputs: {x: [batch, seq, features], p: [seq, hidden], m: [batch, 1, hidden]}
chain:
  - {op: linear, name: fc, out_features: hidden}
  - {op: add, input: p}
  - {op: rms_norm, name: norm, width: head}
  - {op: masked_fill, mask: m, constant: 0.5}
  - {op: sum, keepdim: false}
  - {op: tanh}
""",
    # The target is between inputs that have dimensions of their own.
    "loss_of_inputs": """
dims: {batch: 64, features: 16, hidden: 24}
arguments: {features: {type: dim}, hidden: {type: dim}}
inputs: {x: [batch, features], t: [batch], b: [hidden], m: [batch, hidden]}
chain:
  - {op: linear, name: fc, out_features: hidden}
  - {op: add, input: b}
  - {op: masked_fill, mask: m, constant: -3}
  - {op: cross_entropy, target: t}
""",
    "rows_behind_regions": """
dims: {batch: 64, features: 16, head: 4}
arguments: {features: {type: dim}, head: {type: dim}}
inputs: {x: [batch, features]}
chain:
  - {op: linear, name: up, out_features: features}
  - {op: layer_norm, name: norm, width: head}
  - {op: linear, name: down, out_features: features}
  - {op: add, input: x}
  - {op: logsumexp, keepdim: false}
""",
}


@pytest.mark.parametrize("name", SPECS)
def test_the_module_is_verified(name: str, emulation_cache: Path, tmp_path: Path) -> None:
    (tmp_path / f"{name}.yaml").write_text(HEAD.format(name=name) + SPECS[name])
    plan = planned_file(tmp_path / f"{name}.yaml")
    write_files(render_all([plan]), tmp_path / "generated")
    package = emulate_package(tmp_path / "generated" / name, cache=emulation_cache, checked=False)
    suite = Suite(Subject(plan, package, "cpu"), full=False)
    if not plan.single:
        found = suite.report().findings
    else:
        (size, *_) = several(plan, SMALL[:1])
        found = [*(each for mode in suite.modes() for each in suite.numerics(mode)), *suite.leading()]
        found += [*suite.training(size)]
    assert "numerics" in {each.check for each in found}
    assert not [each for each in found if not each.item.ok]
