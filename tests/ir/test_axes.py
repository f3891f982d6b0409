"""Axes: what values of two sets broadcast to, and what a reduction leaves."""

from __future__ import annotations

import itertools

import pytest

from fusegen.ir.axes import CHANNEL, MATRIX, ROW, SCALAR, Axes, broadcast

GROUP = Axes.of("N", C=4)
SPACE = Axes.of("N", "C", "S")
EVERY = (SCALAR, CHANNEL, ROW, MATRIX, GROUP, Axes.of("N", C="groups"), Axes.of(C=4), SPACE, Axes.of("N", "S", C=4))


def test_names_of_axes() -> None:
    names = ["[]", "[C]", "[N]", "[N, C]", "[N, 4]", "[N, groups]", "[4]", "[N, C, S]", "[N, 4, S]"]
    assert [str(axes) for axes in EVERY] == names


def test_the_order_of_names_does_not_matter() -> None:
    assert Axes.of("S", "C", "N") == SPACE


def test_one_block_is_no_axis() -> None:
    assert Axes.of("N", C=1) == ROW


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        ((), SCALAR),
        ((CHANNEL, SCALAR), CHANNEL),
        ((CHANNEL, ROW), MATRIX),
        ((CHANNEL, GROUP), MATRIX),
        ((ROW, GROUP), GROUP),
        ((GROUP, GROUP), GROUP),
        ((GROUP, Axes.of("N", C=8)), MATRIX),
        ((GROUP, Axes.of("N", C="groups")), MATRIX),
        ((Axes.of(C=4), ROW), GROUP),
        ((CHANNEL, Axes.of("N", "S")), SPACE),
    ],
)
def test_broadcast(operands: tuple[Axes, ...], expected: Axes) -> None:
    assert broadcast(*operands) == expected


def test_broadcast_is_a_join() -> None:
    """Commutative, associative and idempotent, with [] as its neutral element."""
    for a, b, c in itertools.product(EVERY, repeat=3):
        assert broadcast(a, b) == broadcast(b, a)
        assert broadcast(broadcast(a, b), c) == broadcast(a, broadcast(b, c)) == broadcast(a, b, c)
        assert broadcast(a, a) == broadcast(a, SCALAR) == a
        assert a <= a | b and (not a <= b or a | b == b)


def test_values_of_fewer_axes_are_constant_within_elements_of_more() -> None:
    assert ROW <= GROUP <= MATRIX <= SPACE and SCALAR <= ROW
    assert not CHANNEL <= GROUP and not GROUP <= CHANNEL and not Axes.of("N", C=8) <= GROUP


def test_a_reduction_leaves_the_difference() -> None:
    assert MATRIX - CHANNEL == ROW and MATRIX - ROW == CHANNEL and MATRIX - MATRIX == SCALAR
    assert SPACE - CHANNEL == Axes.of("N", "S") and GROUP - CHANNEL == ROW


def test_counts_of_values() -> None:
    assert [axes.count("C", "channels") for axes in (ROW, CHANNEL, GROUP)] == [1, "channels", 4]
    assert [axes.blocks("C") for axes in (ROW, CHANNEL, GROUP)] == [None, None, 4]
    assert "C" in GROUP and "C" not in ROW
