"""Plans of what is reduced over the positions of each image."""

from __future__ import annotations

import pytest

from fusegen.plan.load import plan_document, planned_document
from fusegen.plan.programs.units import Unit
from fusegen.plan.sizes.bytes import samples_of, tensor_bytes
from fusegen.plan.sizes.chain_sizes import typical
from fusegen.render.programs.sizes import sizes
from fusegen.spec.yaml import parse_yaml

HEAD = """\
fusegen: 1
name: demo
dims: {batch: 4, c: 24, h: 6, w: 5}
arguments: {c: {type: dim}, groups: {type: int, typical: 8}}
inputs: {x: [batch, c, h, w]}
dtypes: [float32]
chain:
"""


def text(*steps: str) -> str:
    found = HEAD + "".join(f"  - {{op: {step}}}\n" for step in steps)
    return found if "groups: groups" in found else found.replace(", groups: {type: int, typical: 8}", "")


def plan(*steps: str):
    return plan_document(parse_yaml(text(*steps), "demo.yaml"))


def regions(*steps: str) -> list[list[str]]:
    planned = planned_document(parse_yaml(text(*steps), "demo.yaml"))
    return [[step.op for step in region.steps] for region in planned.regions]


def test_the_kernels_of_a_norm() -> None:
    found = plan("group_norm, name: gn, num_groups: groups", "silu").variants[0]
    assert [[k.kind for k in s.kernels] for s in found.forward.schedules] == [
        ["pointwise", "sample_reduction", "pointwise"]
    ]
    assert found.forward.phases[0].unit is Unit.SAMPLE_GROUP
    # Of each channel, where there are 8 groups.
    assert {t.name: sizes(t) for t in found.saved if t.name.startswith("gn")} == dict.fromkeys(
        ("gn_mean", "gn_rstd"), ("samples", "channels")
    )
    assert found.forward.contiguous_layout == ("x", "y")


def test_a_mean_is_made_in_the_pass_in_front() -> None:
    made = plan("silu", "mean, dim: [2, 3], keepdim: false")
    (variant,) = made.variants
    assert [k.kind for k in variant.forward.kernels] == ["pointwise", "sample_reduction"]
    assert not variant.forward.phases and variant.forward.terminal_unit is Unit.SAMPLE
    (y,) = (t for t in variant.forward.outputs if t.name == "y")
    usual, mode = typical(made), made.modes[0]
    assert tensor_bytes(made, mode, usual.symbols, y) == 4 * 24 * 4
    assert samples_of(made, variant.forward, usual.symbols) == samples_of(made, variant.backward, usual.symbols) == 4
    assert usual.result_of(made.chain) == (4, 24)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # Kernels know one number of groups, and any number of channels.
        (
            ("group_norm, name: a, num_groups: 8", "silu", "group_norm, name: b, num_groups: 4"),
            [["group_norm", "silu"], ["group_norm"]],
        ),
        (
            ("group_norm, name: a, num_groups: 8", "instance_norm, name: b", "group_norm, name: d, num_groups: 8"),
            [["group_norm", "instance_norm", "group_norm"]],
        ),
        (("instance_norm, name: a, track_running_stats: true", "relu"), [["instance_norm"], ["relu"]]),
        # A mean ends its region. Behind a sum of channels it is of images of one.
        (("relu", "mean, dim: [3, 2], keepdim: true", "tanh"), [["relu", "mean"], ["tanh"]]),
        (("relu", "mean, dim: 2, keepdim: true", "tanh"), [["relu"], ["mean"], ["tanh"]]),
        (("relu", "sum, dim: 1, keepdim: true", "sum, dim: [2, 3], keepdim: true"), [["relu", "sum"], ["sum"]]),
        (
            (
                "sum, dim: 1, keepdim: true",
                "mean, dim: [2, 3], keepdim: true",
                "amax, dim: 1, keepdim: true",
                "sum, dim: [2, 3], keepdim: true",
            ),
            [["sum"], ["mean"], ["amax"], ["sum"]],
        ),
        (("relu", "adaptive_avg_pool2d, name: p, output_size: 1"), [["relu", "adaptive_avg_pool2d"]]),
        (("relu", "adaptive_avg_pool2d, name: p, output_size: 2"), [["relu"], ["adaptive_avg_pool2d"]]),
        (("relu", "adaptive_max_pool2d, name: p, output_size: 1"), [["relu"], ["adaptive_max_pool2d"]]),
    ],
    ids=str,
)
def test_where_regions_end(steps: tuple[str, ...], expected: list[list[str]]) -> None:
    assert regions(*steps) == expected
