"""Results of one value a row, and norms of blocks, with what else chains may have: parts, dropout, losses."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.plan.sizes.chain_sizes import SMALL  # noqa: E402
from fusegen.plan.sizes.module_sizes import several  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402
from tests.emulate.building import write  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

HEAD = """
fusegen: 1
name: {name}
about: a chain of the tests
dtypes: [float32]
"""
SPECS = {
    # The ops learn how many channels a part has; a weight of blocks of them; the loss of what was dropped.
    "divided_loss": """
dims: {batch: 64, features: 16, hidden: 24, head: 4}
arguments: {features: {type: dim}, hidden: {type: dim}, head: {type: dim}}
inputs: {x: [batch, features], labels: [batch]}
chain:
  - {op: linear, name: fc, out_features: 2 * hidden}
  - {op: swiglu}
  - {op: rms_norm, name: norm, width: head}
  - {op: dropout, name: drop, p: 0.25}
  - {op: cross_entropy, target: labels}
""",
    # Samples are dropped of values that have lost the dimension of the channels.
    "divided_sum": """
dims: {batch: 64, hidden: 24}
inputs: {x: [batch, 2 * hidden]}
chain:
  - {op: chunk, parts: [a, gate], running: gate}
  - {op: sigmoid}
  - {op: mul, value: a}
  - {op: sum, keepdim: false}
  - {op: drop_path, name: path, p: 0.5}
""",
}


@pytest.mark.parametrize("name", SPECS)
def test_the_module_is_verified(name: str, emulation_cache: Path, tmp_path: Path) -> None:
    plan = write(name, HEAD.format(name=name) + SPECS[name], tmp_path)
    package = emulate_package(tmp_path / name, cache=emulation_cache, checked=False)
    suite = Suite(Subject(module_of(plan), package, "cpu"), full=False)
    (size, *_) = several(module_of(plan), SMALL[:1])
    found = [*(each for mode in suite.modes() for each in suite.numerics(mode)), *suite.leading()]
    found += [*suite.training(size)]
    assert {"numerics", "leading dimensions"} <= {each.check for each in found}
    assert not [each for each in found if not each.item.ok]
