"""Regions beside what else chains have: parts of channels, dropout, statistics of ranks and convolutions."""

from __future__ import annotations

import pytest

from fusegen.errors import SpecError
from fusegen.plan.load import planned_document
from fusegen.render.package import render_all
from fusegen.spec.yaml import parse_yaml
from tests.plan.test_regions import HEAD, planned, regions

WIDE = HEAD.replace("width: 32, ", "").replace("width: {type: dim}, ", "").replace("width", "2 * hidden")
IMAGES = HEAD.replace("[batch, width]", "[batch, width, h, w]").replace("batch: 16", "batch: 16, h: 8, w: 8")
CONV = "  - {op: conv2d, name: conv, out_channels: hidden, kernel_size: 3, padding: 1}\n"
PACKED = """\
  - {op: rms_norm, name: norm}
  - {op: linear, name: up, out_features: 2 * hidden}
  - {op: geglu}
  - {op: dropout, name: first}
  - {op: linear, name: down, out_features: width}
  - {op: dropout, name: second}
  - {op: add, input: x}
"""
PARTS = """\
  - {op: linear, name: up, out_features: 2 * hidden, bias: false}
  - {op: chunk, parts: [a, b]}
  - {op: linear, name: left, out_features: hidden}
  - {op: silu, save: opened}
  - {op: linear, name: right, from: b, out_features: hidden}
  - {op: mul, value: opened}
  - {op: add, value: a}
"""


def test_behind_a_gated_linear_unit_is_half_the_width() -> None:
    made = planned(PACKED)
    assert regions(made)["up"] == (["linear", "geglu", "dropout"], ["norm_result"], ["up_result"])
    assert [region.channels for region in made.regions] == [
        ("width", "width"), ("width", "hidden"), ("hidden", "width"),
    ]  # fmt: skip
    assert made.plans[2].spec.inputs == {"up_result": ("batch", "hidden"), "x": ("batch", "width")}
    module = render_all([made])["demo/__init__.py"]
    text = module if isinstance(module, str) else module.decode()
    assert "self.up = nn.Linear(width, 2 * hidden" in text and "self.down = nn.Linear(hidden, width" in text
    assert '"first": (0, False, -1)' in text and '"second": (0, False, -1)' in text


def test_parts_are_values_that_other_regions_take() -> None:
    made = planned(PARTS)
    assert regions(made) == {
        "up": (["linear", "chunk"], ["x"], ["b", "a"]),
        "left": (["linear"], ["a"], ["left_product"]),
        "right": (["linear", "silu", "mul", "add"], ["b", "left_product", "a"], ["right_result"]),
    }
    assert made.plans[0].spec.outputs == ("b", "a")


def test_a_part_that_the_next_step_does_not_take_may_be_from() -> None:
    steps = PARTS.splitlines(keepends=True)[:2] + ["  - {op: silu, from: b}\n", "  - {op: mul, value: a}\n"]
    made = planned("".join(steps).replace("chunk, parts: [a, b]", "chunk, parts: [a, b], running: a"))
    chain = made.plans[0].chain
    assert chain.number_of_parts == 2 and chain.running[2].name == chain.parts["up_product"][1].name


def test_the_parts_are_results() -> None:
    chain = "".join(PARTS.splitlines(keepends=True)[:2])
    variant = planned(chain, "outputs: [a, b]\n").plans[0].variants[0]
    assert variant.results == ("y", "b") and variant.result_gradients == ("grad_y", "grad_b")


def test_a_region_begins_at_what_was_divided() -> None:
    chain = """\
  - {op: chunk, parts: [a, b]}
  - {op: mul, value: b, save: product}
  - {op: glu, from: x}
  - {op: add, value: product}
"""
    made = planned_document(parse_yaml(WIDE.replace("arguments: {hidden: {type: dim}}\n", "") + chain, "demo.yaml"))
    assert regions(made) == {
        "region_1": (["chunk", "mul"], ["x"], ["product"]),
        "region_2": (["glu", "add"], ["x", "product"], ["region_2_result"]),
    }


def test_what_is_behind_a_layer_stays_there_if_it_divides() -> None:
    """What divides channels takes them from where the layer has left them."""
    made = planned("""\
  - {op: linear, name: gate, out_features: 2 * hidden}
  - {op: glu, save: opened}
  - {op: linear, name: up, from: x, out_features: hidden}
  - {op: mul, value: opened}
""")
    assert regions(made)["gate"] == (["linear", "glu"], ["x"], ["opened"])
    made = planned("""\
  - {op: linear, name: gate, out_features: hidden}
  - {op: silu, save: opened}
  - {op: linear, name: up, from: x, out_features: 2 * hidden}
  - {op: chunk, parts: [a, b], running: b}
  - {op: mul, value: opened}
  - {op: add, value: a}
""")
    assert regions(made)["up"][0] == ["linear", "chunk", "silu", "mul", "add"]


def test_each_region_has_an_exchange_between_ranks() -> None:
    made = planned("""\
  - {op: linear, name: up, out_features: hidden}
  - {op: batch_norm, name: first, sync: true}
  - {op: relu}
  - {op: linear, name: down, out_features: width}
  - {op: batch_norm, name: second, sync: true}
""")
    assert not made.single and all(plan.sync_batch_norm for plan in made.plans)


def test_a_chain_of_images_returns_several_results() -> None:
    text = IMAGES + CONV + "  - {op: relu, save: s}\n  - {op: tanh}\noutputs: [s, result]\n"
    plan = planned_document(parse_yaml(text, "demo.yaml"))
    variant = plan.plans[0].variants[0]
    assert variant.has_contiguous_layout and variant.results == ("y", "s")
    text = render_all([plan])["demo/__init__.py"]
    form = "[batch, hidden, height, width]"
    assert "order=(1, 0)," in text and f"    Returns s {form}, result {form}.\n" in text


@pytest.mark.parametrize(
    ("head", "chain", "more", "reason"),
    [
        (
            HEAD,
            "  - {op: linear, name: up, out_features: hidden}\n  - {op: batch_norm, name: bn, sync: true, save: b}\n"
            "  - {op: relu}\n  - {op: linear, name: down, out_features: hidden}\n  - {op: add, value: b}\n",
            "",
            "a batch norm over ranks has one result",
        ),
        (
            WIDE,
            "  - {op: chunk, parts: [a, b]}\n  - {op: mul, value: b}\n  - {op: add, input: x}\n",
            "",
            "the input 'x' has the shape [batch, 2 * hidden], which does not broadcast to [batch, hidden]",
        ),
        (
            WIDE,
            "  - {op: glu}\n  - {op: linear, name: down, out_features: hidden}\n  - {op: add, input: x}\n",
            "",
            "the input 'x' has the shape [batch, 2 * hidden], which does not broadcast to [batch, hidden]",
        ),
        (HEAD, PARTS.replace("[a, b]", "[a, x]").replace("from: b", "from: x"), "", "'x' is an input: a value needs"),
        (HEAD, PARTS + "  - {op: silu, save: b}\n", "", "a value named 'b' exists already"),
        (
            IMAGES.replace("width, h, w", "2 * hidden, h, width"),  # no layer of images
            "  - {op: chunk, parts: [a, b]}\n  - {op: linear, name: down, from: b, out_features: hidden}\n",
            "outputs: [result, a]\n",
            "'2 * hidden' is a multiple, which only channels may be",
        ),
        (HEAD, "  - {op: relu}\n" + CONV, "", "the first input must have the shape [batch, channels, height, width]"),
    ],
)
def test_refusals(head: str, chain: str, more: str, reason: str) -> None:
    with pytest.raises(SpecError) as caught:
        planned_document(parse_yaml(head + chain + more, "demo.yaml"))
    assert reason in str([each.message for each in caught.value.diagnostics])
