"""Sizes keep to what the spec fixes, whatever is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusegen.plan.load import plan_file
from fusegen.plan.modules.module import module_of
from fusegen.plan.sizes.chain_sizes import LARGE, SMALL, sizes, typical, with_rows
from fusegen.plan.sizes.module_sizes import several
from tests.plan.planning import SPECS as COMMITTED

ROOT = Path(__file__).resolve().parents[2]
SPECS = [ROOT / "specs" / f"{name}.yaml" for name in COMMITTED]


def plan_of(directory: Path, chain: str, dims: str, inputs: str, arguments: str = "{}"):
    path = directory / "demo.yaml"
    path.write_text(
        f"fusegen: 1\nname: demo\nabout: demo\ndims: {dims}\narguments: {arguments}\n"
        f"inputs: {inputs}\ndtypes: [float32]\nchain:\n{chain}"
    )
    return plan_file(path)


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_symbol_has_a_value_and_groups_divide_the_channels(path: Path) -> None:
    plan = plan_file(path)
    found = several(module_of(plan), (*SMALL, *LARGE))
    assert len(found) == len(SMALL) + len(LARGE)
    for each in found:
        assert set(each.symbols) >= {*plan.spec.dims, *(n for n, a in plan.spec.arguments.items() if a.type == "int")}
        for count in plan.chain.group_counts:
            assert each.channels % (count if isinstance(count, int) else each.symbols[count]) == 0


def test_what_is_asked_for_is_given_where_the_spec_leaves_it_open() -> None:
    plan = plan_file(ROOT / "specs" / "gemm_groupnorm_hardtanh.yaml")
    found = sizes(plan, 33, 70, 96, 6)
    assert (found.rows, found.source, found.channels, str(found)) == (33, 70, 96, "33x70x96")
    (count,) = plan.chain.group_counts
    assert found.symbols[count] == 6 and sizes(plan, 33, 70, 97, 6).symbols[count] == 1


def test_numbers_of_the_spec_stay(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "  - {op: relu}\n", "{rows: 8}", "{x: [rows, 24]}")
    assert str(sizes(plan, 33, 70, 96, 6)) == "33x24"
    assert len(several(module_of(plan), SMALL)) == len({shape[0] for shape in SMALL})


def test_channels_are_rounded_to_a_fixed_number_of_groups(tmp_path: Path) -> None:
    chain = "  - {op: group_norm, name: gn, num_groups: 10}\n"
    plan = plan_of(tmp_path, chain, "{rows: 8, width: 40}", "{x: [rows, width]}", "{width: {type: dim}}")
    assert [sizes(plan, 5, 0, channels, 3).channels for channels in (96, 7, 40)] == [90, 10, 40]


def test_a_symbol_that_is_rows_and_channels_has_one_value(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "  - {op: relu}\n", "{n: 8}", "{x: [n, n]}")
    found = sizes(plan, 33, 70, 96, 6)
    assert found.rows == found.channels == found.symbols["n"] == 96


def test_typical_sizes_are_the_specs() -> None:
    plan = plan_file(ROOT / "specs" / "matmul_groupnorm_leakyrelu_sum.yaml")
    found = typical(plan)
    assert str(found) == "1024x8192x8192" and found.symbols["num_groups"] == 512


@pytest.mark.parametrize("wider", [False, True])
def test_groups_that_are_channels_divide_them(tmp_path: Path, wider: bool) -> None:
    """Of a depthwise convolution, and of one that makes several channels of each."""
    out = "wider" if wider else "channels"
    chain = f"  - {{op: conv1d, name: c, out_channels: {out}, kernel_size: 3, groups: channels}}\n  - {{op: relu}}\n"
    dims = "{batch: 4, channels: 8, length: 9" + (", wider: 16}" if wider else "}")
    arguments = "{channels: {type: dim}" + (", wider: {type: dim}}" if wider else "}")
    plan = plan_of(tmp_path, chain, dims, "{x: [batch, channels, length]}", arguments)
    for source, channels in ((70, 96), (3, 7), (12, 100)):
        found = sizes(plan, 33, source, channels, 6)
        assert found.source == source and found.channels % source == 0
        assert found.channels == (max(1, channels // source) * source if wider else source)


def test_norms_over_positions_have_two_at_least(tmp_path: Path) -> None:
    """PyTorch refuses them over one value."""
    chain, dims = "  - {op: instance_norm, name: norm}\n  - {op: relu}\n", "{n: 2, c: 8, h: 4, w: 4}"
    plan = plan_of(tmp_path, chain, dims, "{x: [n, c, h, w]}", "{c: {type: dim}}")
    assert sizes(plan, 1, 24, 32, 4).given == (1, 32, 1, 2)


def test_rows_of_images_are_those_of_their_batch() -> None:
    plan = plan_file(ROOT / "specs" / "batchnorm2d_add_relu.yaml")
    usual = typical(plan)
    assert with_rows(plan, sizes(plan, usual.rows, 1, usual.channels, 1), usual.rows).given == usual.given
    assert with_rows(plan, sizes(plan, 3 * 28 * 28, 1, 256, 1), 3 * 28 * 28).given == (3, 256, 28, 28)
