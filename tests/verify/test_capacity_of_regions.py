"""Sizes of modules with several regions, and of convolutions, that a library or the memory of a device cannot take."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from fusegen.plan.load import plan_file, planned_file  # noqa: E402
from fusegen.plan.modules.module import ModulePlan, module_of  # noqa: E402
from fusegen.plan.sizes.chain_sizes import LARGE, SMALL, sizes  # noqa: E402
from fusegen.plan.sizes.module_sizes import module_sizes  # noqa: E402
from fusegen.verify.subjects.capacity import LIBRARY_ELEMENTS, comparison_bytes, training_bytes, why_too_large  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402

pytestmark = pytest.mark.torch

HEAD = """\
fusegen: 1
name: demo
dims: {batch: 8, channels: 16, height: 12, width: 10}
arguments: {channels: {type: dim}}
inputs: {x: [batch, channels, height, width]}
dtypes: [float32]
chain:
  - {op: conv2d, name: conv1, out_channels: channels, kernel_size: 3, padding: 1, bias: false}
"""
TWO = """\
  - {op: batch_norm, name: bn}
  - {op: conv2d, name: conv2, out_channels: channels, kernel_size: [3, 1], padding: [1, 0], groups: 2, bias: false}
"""
LAYERS = """\
fusegen: 1
name: demo
dims: {batch: 8, features: 16, hidden: 12}
arguments: {features: {type: dim}, hidden: {type: dim}}
inputs: {x: [batch, features]}
dtypes: [float32]
chain:
  - {op: linear, name: up, out_features: hidden}
  - {op: relu}
  - {op: linear, name: down, out_features: features}
"""
LONG, ENOUGH = (3, 64, 20001, 3), 1 << 60


def planned(root: Path, text: str) -> ModulePlan:
    path = root / "demo.yaml"
    path.write_text(text)
    found = planned_file(path)
    assert not found.single
    return found


def test_a_weight_of_a_convolution_that_libraries_do_not_take(tmp_path: Path) -> None:
    plan = planned(tmp_path, HEAD + TWO)
    (mode, _), size = plan.modes, module_sizes(plan, *LONG)
    assert size.symbols["channels"] ** 2 * 9 > LIBRARY_ELEMENTS
    reason = "a weight has 3.6 billion elements, and libraries take fewer than 2^31"
    assert why_too_large(plan, mode, size, comparison_bytes, ENOUGH) == reason
    suite = Suite(Subject(plan, None, "cpu"), capacity=ENOUGH)
    others = [module_sizes(plan, *shape) for shape in (*SMALL, *LARGE[:6]) if shape != LONG]
    assert suite._fitting("numerics", [size, *others, others[0]], mode) == others
    assert suite.sizes == {f"numerics {size} float32": f"{reason}: left out"}


def test_a_report_of_regions_leaves_out_what_is_too_large(tmp_path: Path, monkeypatch) -> None:
    plan = planned(tmp_path, HEAD + TWO)
    suite = Suite(Subject(plan, None, "cpu"), capacity=ENOUGH)
    compared: list[str] = []
    monkeypatch.setattr(Subject, "has_double", False)
    monkeypatch.setattr(suite, "_one", lambda check, size, *_: compared.append(f"{check} {size}") or [])
    assert list(suite._checks()) == []
    (name,) = suite.sizes
    assert name.removesuffix(" float32") not in compared and "numerics 1x20000x2x3" in name
    # Nothing is compared where nothing fits, but how the module is made.
    suite.capacity = 100
    compared.clear()
    list(suite._checks())
    assert {each.split()[0] for each in compared} == {"construction"}
    assert all(line.endswith("left out") for line in suite.sizes.values())
    assert {"training", "memory formats", "torch.compile"} <= {name.rsplit(" ", 2)[0] for name in suite.sizes}


@pytest.mark.parametrize("bytes_", [comparison_bytes, training_bytes])
def test_what_a_layer_takes_that_pytorch_calls_is_counted(tmp_path: Path, bytes_) -> None:
    plan = planned(tmp_path, LAYERS)
    assert [region.plan is None for region in plan.regions] == [False, True]
    mode, _ = plan.modes
    size, wider = module_sizes(plan, 3, 64, 64, 1), module_sizes(plan, 3, 20001, 1, 1)
    (first,) = plan.plans
    assert bytes_(plan, mode, size) > 1.9 * bytes_(module_of(first), first.modes[0], sizes(first, 3, 64, 64, 1))
    assert bytes_(plan, mode, wider) > 2 * bytes_(plan, mode, size)
    assert why_too_large(plan, mode, size, bytes_, 100).startswith("it takes 0.0 GB of 0.0")


def test_a_convolution_of_one_region(tmp_path: Path) -> None:
    """A smaller size takes the place, where it runs the same kernels."""
    path = tmp_path / "demo.yaml"
    path.write_text(HEAD.replace("channels: 16,", "channels: 16, more: 8,").replace(
        "arguments: {", "arguments: {more: {type: dim}, ").replace("out_channels: channels", "out_channels: more"
    ) + "  - {op: relu}\n")  # fmt: skip
    plan = plan_file(path)
    suite, size = Suite(Subject(module_of(plan), None, "cpu"), capacity=ENOUGH), sizes(plan, 3, 20001, 20001, 1)
    suite._kernels = lambda size, mode: []  # type: ignore[method-assign]
    (found,) = suite._fitting("numerics", [size], plan.modes[0])
    assert found.source * found.channels * 9 < LIBRARY_ELEMENTS <= (found.source + 64) * found.channels * 9
    (line,) = suite.sizes.values()
    assert line == f"a weight has 3.6 billion elements, and libraries take fewer than 2^31: {found} in its place"
