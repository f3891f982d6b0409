"""Extents: over which axes a value varies, and what values of two extents broadcast to."""

from __future__ import annotations

import itertools

import pytest

from fusegen.ir.extent import ALL, CHANNEL, FULL, ROW, SCALAR, Extent, broadcast, segment

EVERY = (SCALAR, CHANNEL, ROW, FULL, segment(4), segment("groups"))


def test_names_of_the_extents() -> None:
    assert [str(extent) for extent in EVERY] == ["[]", "[C]", "[N]", "[N, C]", "[N, 4]", "[N, groups]"]


@pytest.mark.parametrize(
    ("extent", "kinds"),
    [
        (SCALAR, "scalar"),
        (CHANNEL, "channel"),
        (ROW, "segment"),
        (segment(4), "segment"),
        (FULL, "full"),
        (Extent(False, 4), ""),
    ],
)
def test_each_extent_is_of_one_kind(extent: Extent, kinds: str) -> None:
    found = [kind for kind in ("full", "channel", "scalar", "segment") if getattr(extent, f"is_{kind}")]
    assert " ".join(found) == kinds


def test_a_single_segment_is_the_row() -> None:
    assert segment(1) == ROW and segment(ALL) == FULL


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        ((), SCALAR),
        ((CHANNEL, SCALAR), CHANNEL),
        ((CHANNEL, ROW), FULL),
        ((CHANNEL, segment(4)), FULL),
        ((ROW, segment(4)), segment(4)),
        ((segment(4), segment(4)), segment(4)),
        ((segment(4), segment(8)), FULL),
        ((segment(4), segment("groups")), FULL),
        ((Extent(False, 4), ROW), segment(4)),
    ],
)
def test_broadcast(operands: tuple[Extent, ...], expected: Extent) -> None:
    assert broadcast(*operands) == expected


def test_broadcast_is_a_join() -> None:
    """Commutative, associative and idempotent, with [] as its neutral element."""
    for a, b, c in itertools.product(EVERY, repeat=3):
        assert broadcast(a, b) == broadcast(b, a)
        assert broadcast(broadcast(a, b), c) == broadcast(a, broadcast(b, c)) == broadcast(a, b, c)
        assert broadcast(a, a) == broadcast(a, SCALAR) == a
