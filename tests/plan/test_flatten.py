"""Rows of all elements of an image, whose width layers behind have."""

from __future__ import annotations

import pytest

from fusegen.errors import SpecError
from fusegen.plan.load import planned_document
from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.sizes.module_sizes import module_sizes, module_sizes_at, module_typical
from fusegen.render.package import render_all
from fusegen.spec.yaml import parse_yaml

SPEC = """\
fusegen: 1
name: demo
dims: {batch: 4, channels: 3, hidden: 16, flat: 400, classes: 10, height: 32, width: 32}
arguments: {channels: {type: dim}, hidden: {type: dim}, flat: {type: dim}, classes: {type: dim}}
inputs: {x: [batch, channels, height, width]}
chain:
  - {op: conv2d, name: one, out_channels: 6, kernel_size: 5}
  - {op: relu}
  - {op: max_pool2d, name: pool, kernel_size: 2}
  - {op: conv2d, name: two, out_channels: hidden, kernel_size: 5}
  - {op: relu}
  - {op: max_pool2d, name: pool_two, kernel_size: 2}
  - {op: flatten, features: flat}
"""
FC = "  - {op: linear, name: fc, out_features: classes}\n  - {op: relu}\n"
BEHIND = {
    "linear": FC,
    "batch norm": "  - {op: batch_norm, name: bn}\n" + FC,
    "a norm's shape": "  - {op: layer_norm, name: norm, normalized_shape: [flat]}\n" + FC,
    "a parameter": "  - {op: mul, parameter: gamma, shape: [flat], init: ones}\n" + FC,
}


def planned(text: str) -> ModulePlan:
    return planned_document(parse_yaml(text, "demo.yaml"))


def refused(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        planned(text)
    return [f"{each.code} {each.message} ({each.hint})" for each in caught.value.diagnostics]


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND)
def test_what_is_behind_has_the_width_that_is_named(behind: str) -> None:
    made = planned(SPEC + behind)
    assert made.regions[-1].inputs and ("batch", "flat") in made.shapes.values()
    text = render_all([made])["demo/__init__.py"]
    assert "flat" in text and "torch.flatten(" in text


def test_a_layer_takes_the_width() -> None:
    assert "nn.Linear(flat, classes, **_factory)" in render_all([planned(SPEC + FC)])["demo/__init__.py"]
    number = (
        SPEC.replace(" flat: 400,", "").replace(" flat: {type: dim},", "").replace("features: flat", "features: 400")
    )
    assert "nn.Linear(400, classes, **_factory)" in render_all([planned(number + FC)])["demo/__init__.py"]


@pytest.mark.parametrize("shape", [(64, 3, 16, 1), (1000, 3, 33, 1), (4096, 5, 8, 1), (40000, 2, 24, 1)])
def test_the_width_follows_from_other_sizes(shape: tuple[int, int, int, int]) -> None:
    made = planned(SPEC + FC)
    found = module_sizes(made, *shape).symbols
    rows = next(dims for dims in made.shapes.values() if dims == ("batch", "flat"))
    assert found[str(rows[1])] == found["hidden"] * _behind(found["height"]) * _behind(found["width"])
    assert found["hidden"] == shape[2] and module_typical(made).symbols["flat"] == 400


def _behind(size: int) -> int:
    return ((size - 4) // 2 - 4) // 2


def test_sizes_that_do_not_fit_together() -> None:
    made = planned(SPEC + FC)
    assert module_sizes_at(made, {**made.spec.dims, "height": 33}).symbols["flat"] == 400
    with pytest.raises(ValueError, match="do not fit together"):
        module_sizes_at(made, {**made.spec.dims, "height": 36})


def test_a_width_of_its_own_is_not_made_of_others() -> None:
    """It is the width of a layer in front, too, which tests choose."""
    text = SPEC.replace("hidden: 16, flat: 400", "flat: 16").replace("hidden: {type: dim}, ", "")
    text = text.replace("hidden", "flat").replace("height: 32, width: 32", "height: 16, width: 17")
    found = module_sizes(planned(text + FC), 64, 3, 24, 1).symbols
    assert found["flat"] == 24 and _behind(found["height"]) == _behind(found["width"]) == 1


ONE = "  - {op: flatten, features: flat, save: one}\n"
TWICE = f"""{SPEC[: SPEC.index("chain:")].replace("flat: 400", "flat: 3072").replace("hidden: 16, ", "")}chain:
  - {{op: relu, save: a}}
%s  - {{op: exp, from: a}}
%s  - {{op: mul, value: one}}
{FC}""".replace("hidden: {type: dim}, ", "")


@pytest.mark.parametrize("which", [0, 1])
def test_rows_of_as_many_elements_have_one_width(which: int) -> None:
    """Whichever of two steps names it."""
    steps = [ONE, "  - {op: flatten}\n"]
    if which:
        steps = ["  - {op: flatten, save: one}\n", "  - {op: flatten, features: flat}\n"]
    made = planned(TWICE % tuple(steps))
    symbols = module_sizes(made, 512, 3, 8, 1).symbols
    assert symbols["flat"] == symbols["channels"] * symbols["height"] * symbols["width"] != 3072


@pytest.mark.parametrize("name", ["linear", "batch norm"])
def test_without_the_key_the_refusal_names_it(name: str) -> None:
    text = SPEC.replace(", features: flat", "").replace(" flat: 400,", "").replace(" flat: {type: dim},", "")
    first = refused(text + BEHIND[name])[0]
    assert first.startswith("FG301 the constructor needs the channels that flatten makes, but no argument gives them")
    assert first.endswith("(give flatten the key 'features')")


def test_another_width_than_the_elements_is_refused() -> None:
    (message,) = refused(SPEC.replace("flat: 400", "flat: 401") + FC)
    assert message.startswith("FG303 the rows have 400 elements, 16 * 5 * 5, and not 401")
    missing = refused(SPEC.replace(" flat: {type: dim},", "") + FC)
    assert missing[0].startswith("FG301 the constructor needs the size 'flat', but no argument gives it")
    unknown = refused(SPEC.replace("features: flat", "features: flatt") + FC)
    assert any(each.startswith("FG209 'flatt' is not a symbol of dims") for each in unknown)
