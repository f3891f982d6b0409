"""The lists of the command line, the shapes of a spec, and the command that a CSV names."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from fusegen.bench.names import MODES, PEERS
from fusegen.bench.options import Options, names, read, shapes
from fusegen.bench.shapes import sizes_of
from fusegen.plan.load import plan_file, planned_file
from fusegen.plan.modules.module import module_of
from tests.bench.standins import CHAIN, GROUPS

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]


def test_names_are_split_and_kept_in_order() -> None:
    assert names(" compile,eager, compile", PEERS, "--against") == ("compile", "eager")


@pytest.mark.parametrize(("text", "expected"), [("eager,triton,nothing", "triton, nothing"), (" , ", "nothing given")])
def test_unknown_names_are_refused_with_those_that_there_are(text: str, expected: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        names(text, PEERS, "--against")
    assert expected in caught.value.message and all(peer in caught.value.message for peer in PEERS)
    assert caught.value.param_hint == "--against"


@pytest.mark.parametrize("text", ["1024", "0x4x4", "4x-1x4", "axbxc", "1x2x3x4x5x6", "4x4x", "", "typical,8*8*8"])
def test_what_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        shapes(text, "--shapes")


def test_the_command_says_what_is_not_usual_and_gives_the_same_options_again() -> None:
    specs = [Path("specs/a b.yaml"), Path("specs")]
    assert Options().command(specs[1:]) == "fusegen bench specs"
    options = read("eager", "bf16,fp32", "typical,8x8x8", ",".join(MODES), 3, 400.0)
    command = options.command(specs)
    assert command == (
        "fusegen bench 'specs/a b.yaml' specs --against eager --dtypes bf16,fp32 --shapes typical,8x8x8 "
        "--seed 3 --limit 400"
    )


@pytest.fixture
def plans(tmp_path: Path):
    made = []
    for name, text in (("linear", CHAIN), ("groups", GROUPS)):
        path = tmp_path / f"{name}.yaml"
        path.write_text(text.format(name=name), encoding="utf-8")
        made.append(planned_file(path))
    return made


def test_shapes_of_a_spec(plans) -> None:
    linear, groups = plans
    assert str(sizes_of(linear, "typical")) == "64x32x48" and str(sizes_of(groups, "typical")) == "64x48"
    found = sizes_of(linear, "7x5x3")
    assert (found.rows, found.source, found.channels) == (7, 5, 3)
    assert found.symbols == {"batch": 7, "in_features": 5, "features": 3}
    assert sizes_of(groups, "7x12").channels == 12


def test_the_typical_number_of_groups_stays_where_it_divides() -> None:
    plan = plan_file(ROOT / "specs" / "gemm_bias_hardtanh_mish_groupnorm.yaml")
    assert sizes_of(module_of(plan), "64x512x8192").symbols["num_groups"] == 256
    assert sizes_of(module_of(plan), "64x512x96").symbols["num_groups"] == 32


@pytest.mark.parametrize(("which", "shape"), [(0, "7x5"), (1, "7x5x3"), (1, "7x13")])
def test_a_shape_that_a_spec_does_not_have(plans, which: int, shape: str) -> None:
    with pytest.raises(ValueError, match=shape):
        sizes_of(plans[which], shape)
