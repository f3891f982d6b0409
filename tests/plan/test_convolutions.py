"""What is planned behind a convolution: sizes of results, rows and formats in the report, and what is refused."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Literal

import pytest

from fusegen.errors import SpecError
from fusegen.explain.text import report
from fusegen.ops.step import Step
from fusegen.plan.load import plan_document, plan_file, planned_file
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.contiguous_layout import AS_SUCH
from fusegen.plan.sizes.bytes import positions_of, typical_symbols
from fusegen.plan.summary import summary
from fusegen.spec.yaml import parse_yaml
from tests.chains.convolutions import EXPRESSIBLE, REFUSED, refused_spec
from tests.plan.planning import committed

torch = pytest.importorskip("torch")

SPEC = """\
fusegen: 1
name: demo
dims: {{batch: 2, in_channels: 4, {positions}}}
arguments: {{in_channels: {{type: dim}}}}
inputs: {{x: [batch, in_channels, {names}]}}
chain: [{{op: {op}, name: conv, out_channels: in_channels, {options}}}]
"""


def planned(op: str, given: tuple[int, ...], options: dict) -> Plan:
    names = [f"p{index}" for index in range(len(given))]
    text = SPEC.format(
        op=op,
        positions=", ".join(f"{name}: {size}" for name, size in zip(names, given, strict=True)),
        names=", ".join(names),
        options=", ".join(f"{key}: {list(v) if isinstance(v, tuple) else v}" for key, v in options.items()),
    )
    return plan_document(parse_yaml(text, "demo.yaml"))


def layer(op: str, options: dict):
    """That of torch.nn, without data."""
    name = "".join(part.capitalize() for part in op[:-1].split("_")) + "d"
    name = name.replace("Conv_transpose", "ConvTranspose")
    return getattr(torch.nn, name)(4, 4, **options, device="meta")


def drawn_options(rng: random.Random, transposed: bool, spatial: int) -> dict:
    def each(least: int, most: int) -> object:
        one = rng.randint(least, most)
        return one if rng.random() < 0.5 else tuple(rng.randint(least, most) for _ in range(spatial))

    options = {"kernel_size": each(1, 3), "stride": each(1, 3), "dilation": each(1, 2), "groups": rng.choice((1, 2, 4))}
    if transposed:
        options |= {"padding": each(0, 1), "output_padding": 0 if options["stride"] == 1 else rng.choice((0, 0, 1))}
        strides, dilations = options["stride"], options["dilation"]
        least = [min(v) if isinstance(v, tuple) else v for v in (strides, dilations)]
        options["output_padding"] = min(options["output_padding"], max(least) - 1)
        return options
    padding = rng.choice((each(0, 2), "same", "valid"))
    return options | {"padding": padding} | ({"stride": 1} if padding == "same" else {})


@pytest.mark.parametrize(("transposed", "spatial"), itertools.product((False, True), (1, 2, 3)))
def test_the_sizes_of_results_are_pytorchs(transposed: bool, spatial: int) -> None:
    """By the plan, and by what a module computes when it is called."""
    from generated.support.convolution import result_shape

    rng, op = random.Random(spatial), f"conv_transpose{spatial}d" if transposed else f"conv{spatial}d"
    for _ in range(40):
        options = drawn_options(rng, transposed, spatial)
        given = tuple(rng.randint(6, 12) for _ in range(spatial))
        made, x = layer(op, options), torch.empty(2, 4, *given, device="meta")
        expected = made(x).shape
        plan = planned(op, given, options)
        assert positions_of(plan, typical_symbols(plan.spec)) == 2 * expected[2:].numel(), options
        assert result_shape(made, x, made.weight, 4) == tuple(expected), options


def test_a_plan_says_the_format_and_why() -> None:
    plan = committed("convtranspose3d_add_hardswish")
    made = summary(plan)["convolution"]
    assert made["rows"] == 128 * 32**3 and made["memory_format"] == "channels_last_3d" and made["bias"]
    text = report(plan)
    assert "conv_transpose: in_channels -> out_channels by torch.nn.functional.conv_transpose3d" in text
    assert "in channels_last_3d: the kernels take the channels as rows of memory" in text
    # The kernels' bytes: the convolution's result and the other input once, the result once.
    forward = summary(plan)["variants"][0]["programs"][0]
    assert forward["floor_bytes"] == 3 * 4 * 64 * 128 * 32**3 + 4 * 64
    variant = summary(plan)["variants"][0]
    assert variant["inputs_saved"] == ["x", "add_input"] and variant["saved"] == ["conv_transpose_result"]


@pytest.mark.parametrize("name", EXPRESSIBLE)
def test_what_may_be_contiguous(name: str, tmp_path: Path) -> None:
    """All or nothing, with the reason in both programs."""
    path = tmp_path / f"{name}.yaml"
    path.write_text(EXPRESSIBLE[name].spec(name), encoding="utf-8")
    for variant in plan_file(path).variants:
        programs, further = (variant.forward, variant.backward), list(variant.chain.tail_inputs)
        if name in ("one_dimension", "smallest_tanh"):
            of_rows = "the result has one value for each row"
            why = f"are copied: {of_rows if name == 'smallest_tanh' else f'{variant.forward.name} reduces each row'}"
            assert all(not program.contiguous_layout and why in program.reasons[-1] for program in programs)
            continue
        assert all(AS_SUCH in program.reasons[-1] for program in programs)
        assert variant.forward.contiguous_layout == (*further, variant.result)
        gradients = {variant.gradients[each].name for each in further}
        read = {tensor.name for tensor in variant.backward.inputs} & {*further}
        assert {*variant.backward.contiguous_layout} == {variant.result_gradient, *read, *gradients}


@pytest.mark.parametrize(
    ("op", "groups", "is_depthwise"),
    [("conv1d", "channels", True), ("conv1d", "6", True), ("conv1d", "3", False), ("conv1d", "1", False),
     ("conv_transpose1d", "channels", False)],
)  # fmt: skip
def test_a_depthwise_convolution_says_how_its_gradients_are_made(op: str, groups: str, is_depthwise: bool) -> None:
    channels, declared = ("6", "") if groups.isdigit() else ("channels", "arguments: {channels: {type: dim}}\n")
    dims = "batch: 2, positions: 8" + ("" if groups.isdigit() else ", channels: 6")
    text = (
        f"fusegen: 1\nname: depth\ndims: {{{dims}}}\n{declared}inputs: {{x: [batch, {channels}, positions]}}\nchain:\n"
        f"  - {{op: {op}, name: conv, out_channels: {channels}, kernel_size: 3, groups: {groups}}}\n  - {{op: silu}}\n"
    )
    variant = plan_document(parse_yaml(text, "depth.yaml")).variants[0]
    said = [any("depthwise" in each for each in p.reasons) for p in (variant.forward, variant.backward)]
    assert said == [False, is_depthwise]


@pytest.mark.parametrize(
    ("change", "said"),
    [({}, True), ({"kernel_size": 2}, False), ({"kernel_size": "[9, 1]"}, True), ({"stride": 2}, False),
     ({"dilation": 2}, False), ({"groups": 2}, False), ({"groups": 8}, False), ({"op": "conv_transpose2d"}, False),
     ({"in": 32}, False), ({"in": 1}, False), ({"in": 40}, True), ({"in": 40, "out_channels": 48}, False),
     ({"in": 72}, False), ({"in": 72, "out_channels": 96}, True), ({"in": 264, "out_channels": 512}, False),
     ({"out_channels": 24}, False), ({"in": "channels"}, True)],
    ids=str,
)  # fmt: skip
def test_a_convolution_of_few_channels_says_how_it_is_made(change: dict[str, object], said: bool) -> None:
    step = {"op": "conv2d", "name": "conv", "out_channels": 64, "kernel_size": 3, **change}
    channels = step.pop("in", 8)
    declared = "arguments: {channels: {type: dim}}\n" if channels == "channels" else ""
    dims = "batch: 2, height: 12, width: 12" + (", channels: 8" if declared else "")
    text = (
        f"fusegen: 1\nname: few\ndims: {{{dims}}}\n{declared}"
        f"inputs: {{x: [batch, {channels}, height, width]}}\nchain:\n"
        f"  - {{{', '.join(f'{key}: {value}' for key, value in step.items())}}}\n  - {{op: silu}}\n"
    )
    variant = plan_document(parse_yaml(text, "few.yaml")).variants[0]
    told = [any("with zeros beside them" in each for each in p.reasons) for p in (variant.forward, variant.backward)]
    assert told == [said, False]


@pytest.mark.parametrize(
    ("options", "is_product"),
    [("kernel_size: 1", True), ("kernel_size: 1, padding: same, dilation: 2", True), ("kernel_size: 3", False),
     ("kernel_size: 1, stride: 2", False), ("kernel_size: 1, padding: 1", False), ("kernel_size: 1, groups: 2", False)],
)  # fmt: skip
def test_a_convolution_of_one_position_says_that_it_is_a_product(options: str, is_product: bool) -> None:
    text = (
        "fusegen: 1\nname: product\ndims: {batch: 2, positions: 8}\ninputs: {x: [batch, 6, positions]}\nchain:\n"
        f"  - {{op: conv1d, name: conv, out_channels: 8, {options}}}\n  - {{op: silu}}\n"
    )
    variant = plan_document(parse_yaml(text, "product.yaml")).variants[0]
    said = [any("product of matrices" in each for each in p.reasons) for p in (variant.forward, variant.backward)]
    assert said == [is_product, False]


def test_the_bias_in_front_of_batch_norm() -> None:
    reasons = committed("conv2d_batchnorm_scaling").variants[0].backward.reasons
    assert any("gradient of conv.bias is zero" in reason for reason in reasons)


@pytest.mark.parametrize("name", EXPRESSIBLE)
def test_chains_that_can_be_written(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.yaml"
    path.write_text(EXPRESSIBLE[name].spec(name), encoding="utf-8")
    (region,) = planned_file(path).regions
    assert region.plan.chain.spatial == region.spatial == EXPRESSIBLE[name].spatial


@pytest.mark.parametrize("name", REFUSED)
def test_chains_that_are_refused_with_the_reason(name: str) -> None:
    spatial, step, reason = REFUSED[name]
    with pytest.raises(SpecError, match=reason):
        plan_document(parse_yaml(refused_spec(spatial, step), "refused.yaml"))


def test_an_op_that_says_nothing_of_positions_is_refused() -> None:
    """An entry of the catalogue that looks at a whole row may look at another dimension there."""

    class OfRows(Step):
        op: Literal["of_rows"]
        needs_elements = True
        matrix_only = "never"

    class OfMatrices(Step):
        op: Literal["of_matrices"]

    class OfElements(Step):
        op: Literal["of_elements"]
        matrix_only = "never"

    assert OfRows(op="of_rows").not_over_positions() and OfMatrices(op="of_matrices").not_over_positions()
    assert OfElements(op="of_elements").not_over_positions() is None
