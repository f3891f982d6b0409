"""cat and narrow in plans: the channels behind them, their regions, and what is refused."""

from __future__ import annotations

import pytest

from fusegen.errors import SpecError
from fusegen.plan.load import planned_document
from fusegen.spec.yaml import parse_yaml

HEAD = """\
fusegen: 1
name: demo
dims: {batch: 2, channels: 4, more: 6, height: 9, width: 8}
arguments: {channels: {type: dim}}
inputs: {x: [batch, channels, height, width], skip: [batch, more, height, width]}
chain:
"""


def planned(*steps: str, head: str = HEAD):
    return planned_document(parse_yaml(head + "".join(f"  - {{{step}}}\n" for step in steps), "demo.yaml"))


def test_regions_and_their_channels() -> None:
    plan = planned("op: relu, save: y", "op: cat, values: [skip, y], dim: 1", "op: tanh")
    assert [[step.op for step in region.steps] for region in plan.regions] == [["relu"], ["cat"], ["tanh"]]
    assert list(plan.regions[1].inputs) == ["y", "skip"]
    last = plan.regions[2]
    assert last.plan.spec.dims[next(iter(last.inputs.values()))[1]] == 4 + 6 + 4


def test_a_layer_behind_it_has_the_channels_that_it_says() -> None:
    head = HEAD.replace("more: 6", "more: 6, both: 10").replace("{channels: {type: dim}}", "{both: {type: dim}}")
    steps = ("op: relu", "op: cat, values: [skip], channels: both", "op: batch_norm, name: bn")
    plan = planned(*steps, head=head)
    assert next(iter(plan.regions[2].inputs.values())) == ("batch", "both", "height", "width")
    with pytest.raises(SpecError, match="no argument gives them"):
        planned(*(step.replace(", channels: both", "") for step in steps))


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (("op: cat, values: [skip]",), "PyTorch calls every step"),
        (("op: relu", "op: cat, values: [other]", "op: tanh"), "no step before this one saves 'other'"),
        (("op: relu", "op: cat, values: []", "op: tanh"), "values"),
        (
            ("op: relu, save: y", "op: max_pool2d, name: p, kernel_size: 2", "op: cat, values: [y, skip]", "op: tanh"),
            "does not fit",
        ),
        (
            ("op: relu", "op: mean, dim: [2, 3], keepdim: false", "op: cat, values: [skip]", "op: tanh"),
            "does not fit",
        ),
        (("op: relu", "op: cat, values: [skip], channels: 9, dim: 1", "op: tanh"), "has 10 channels, and not 9"),
        (("op: relu", "op: cat, values: [skip]", "op: tanh"), "does not fit"),  # of [..., channels]
        (("op: relu", "op: cat, values: [skip], dim: 1", "op: add, input: skip"), "does not broadcast"),
    ],
)
def test_what_is_refused(steps, words) -> None:
    with pytest.raises(SpecError) as caught:
        planned(*steps)
    assert any(words in each.message for each in caught.value.diagnostics), caught.value


NARROWED = HEAD.replace("more: 6", "more: 6, part: 3").replace("arguments: {", "arguments: {part: {type: dim}, ")


def test_some_channels() -> None:
    steps = ("op: relu, save: y", "op: narrow, start: 1, length: part, dim: 1", "op: batch_norm, name: bn")
    plan = planned(*steps, "op: cat, values: [y, skip]", "op: tanh", head=NARROWED)
    assert [[step.op for step in region.steps] for region in plan.regions] == [
        ["relu"], ["narrow"], ["batch_norm"], ["cat"], ["tanh"],
    ]  # fmt: skip
    assert next(iter(plan.regions[2].inputs.values())) == ("batch", "part", "height", "width")
    assert plan.regions[4].plan.spec.dims[next(iter(plan.regions[4].inputs.values()))[1]] == 3 + 4 + 6


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("start: 2, length: part", "there are 4 channels, and not 3 from 2 on"),
        ("start: other, length: part", "'other' is not a symbol of dims"),
        ("start: height, length: part", "height"),
        ("start: -1, length: part", "start"),
        ("start: 0, length: 0", "length"),
    ],
)
def test_channels_that_there_are_not(step, words) -> None:
    with pytest.raises(SpecError) as caught:
        planned("op: relu", f"op: narrow, {step}, dim: 1", "op: cat, values: [skip], dim: 1", "op: tanh", head=NARROWED)
    assert any(words in each.message for each in caught.value.diagnostics), caught.value


def test_an_input_is_not_left_over() -> None:
    with pytest.raises(SpecError, match="nothing uses the input 'skip'"):
        planned("op: relu", "op: cat, values: [x]", "op: tanh")
