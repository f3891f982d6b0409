"""A loss, or another value of each row, as the last result beside values that have the channels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

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
name: rows_head
dims: {batch: 64, width: 16, classes: 40}
arguments: {width: {type: dim}, classes: {type: dim}}
inputs: {x: [batch, width], labels: [batch]}
dtypes: [float32, bfloat16]
chain:
  - {op: linear, name: fc, out_features: classes, save: logits}
  - {op: cross_entropy, target: labels, label_smoothing: 0.25}
outputs: [result, logits]
"""
# The loss's region begins with what another layer has made, and stores two values; one of them has one channel.
NET = """
fusegen: 1
name: rows_net
dims: {batch: 64, width: 16, classes: 40}
arguments: {width: {type: dim}, classes: {type: dim}}
inputs: {x: [batch, width]}
dtypes: [float32]
chain:
  - {op: linear, name: up, out_features: width}
  - {op: silu, save: hidden}
  - {op: linear, name: down, out_features: classes, bias: false}
  - {op: softmax, save: shares}
  - {op: max, keepdim: true, save: largest}
  - {op: mul, value: shares}
  - {op: sum, keepdim: false}
outputs: [hidden, result, shares, largest]
"""
IMAGES = """
fusegen: 1
name: rows_images
dims: {batch: 4, channels: 8, height: 5, width: 6, classes: 7}
arguments: {channels: {type: dim}, classes: {type: dim}}
inputs: {x: [batch, channels, height, width], labels: [batch, height, width]}
dtypes: [float32]
chain:
  - {op: conv2d, name: head, out_channels: classes, kernel_size: 3, padding: 1}
  - {op: mul, constant: 0.5, save: logits}
  - {op: cross_entropy, target: labels, reduction: sum}
outputs: [logits, result]
"""


def built(text: str, root: Path, cache: Path) -> tuple[Any, Any]:
    name = text.partition("name: ")[2].partition("\n")[0]
    (root / f"{name}.yaml").write_text(text)
    plan = planned_file(root / f"{name}.yaml")
    write_files(render_all([plan]), root)
    return plan, emulate_package(root / name, cache=cache, checked=False)


@pytest.fixture(scope="module")
def packages(tmp_path_factory, emulation_cache):
    root = tmp_path_factory.mktemp("rows")
    return {text: built(text, root, emulation_cache) for text in (HEAD, NET, IMAGES)}


def test_a_loss_with_its_logits(packages) -> None:
    plan, package = packages[HEAD]
    suite = Suite(Subject(plan, package, "cpu"), full=False)
    (size, *_) = several(plan, SMALL[:1])
    found = [each for mode in suite.modes() for each in suite.numerics(mode)]
    found += [*suite.leading(), *suite.training(size), *suite.gradcheck()]
    assert not [each for each in found if not each.item.ok]
    assert {"numerics", "leading dimensions", "training"} <= {each.check for each in found}


@pytest.mark.parametrize("text", [NET, IMAGES])
def test_regions_and_images(packages, text: str) -> None:
    plan, package = packages[text]
    assert bool(plan.single) == (text is not NET)
    report = Suite(Subject(plan, package, "cpu"), full=False).report()
    assert not [f"{each.check} {each.shape} {each.item.name}: {each.item.note}" for each in report.failed]
    assert {"numerics", "torch.compile", "training"} <= {finding.check for finding in report.findings}


def test_shapes_and_single_gradients(packages) -> None:
    """Each result by itself, and under inference mode."""
    module = packages[HEAD][1].RowsHead(6, 9)
    module.fusegen_strict = True
    labels = torch.tensor([-100, 3, 8, 0, 3])
    x = torch.randn(5, 6)
    for index in range(2):
        given = [x.clone().requires_grad_() for _ in range(2)]
        ours, logits = module(given[0], labels), module.fc(given[1])
        theirs = F.cross_entropy(logits, labels, label_smoothing=0.25), logits
        torch.testing.assert_close(ours, theirs)
        ours[index].sum().backward()
        theirs[index].sum().backward()
        torch.testing.assert_close(given[0].grad, given[1].grad)
    with torch.inference_mode():
        assert [each.shape for each in module(x, labels)] == [(), (5, 9)]
