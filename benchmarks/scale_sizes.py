"""The sizes of scale.py: powers of two of bytes in several aspect ratios, then what lies beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MOST_ROWS, MOST_CHANNELS, LEAST_CHANNELS = 1 << 20, 65536, 8
# Channels, and channels a group, of each power of two of bytes. Groups beyond a block's registers too.
ASPECTS = (
    *((8, 8), (128, 32), (1024, 32), (8192, 32), (65536, 32)),
    *((1024, 1024), (8192, 4096), (5120, 5120), (12288, 12288), (65536, 65536)),
)
_LEAST_BYTES = 1 << 20
# Every power of two of channels, at this many bytes.
_ASPECT_BYTES = 64 << 20


@dataclass(frozen=True)
class Size:
    """groups: of channels, for chains with group norm; their sizes differ in the length of a group."""

    rows: int
    channels: int
    groups: int


def sizes(width: int, grouped: bool, most_bytes: int, quick: bool) -> list[Size]:
    """Sizes of activations with `width` bytes an element, the most telling first, each once.

    grouped: whether the chain has groups; they divide the channels in every size.
    """
    found = list(_powers(width, grouped, most_bytes, 8 if quick else 2))
    found += _few_rows(width, grouped)
    if not quick:
        found += _aspects(width, grouped, most_bytes)
    beside = list(_powers(width, grouped, most_bytes, 64 if quick else 4))
    # Neighbours that are off by one first: those are the ones without vectors.
    for offset in range(3):
        for size in beside:
            found += _neighbours(size, grouped, offset)
    return list(dict.fromkeys(found))


def nearest_prime(n: int) -> int:
    """The prime that is nearest to n, other than n; the smaller of two."""
    distance = 1
    while True:
        for candidate in (n - distance, n + distance):
            if candidate > 1 and all(candidate % d for d in range(2, int(candidate**0.5) + 1)):
                return candidate
        distance += 1


def _powers(width: int, grouped: bool, most_bytes: int, factor: int) -> Iterator[Size]:
    bytes_ = _LEAST_BYTES
    while bytes_ <= most_bytes:
        for channels, length in _distinct_aspects(grouped):
            rows = bytes_ // (channels * width)
            if 1 <= rows <= MOST_ROWS:
                yield Size(rows, channels, channels // length if grouped else 1)
        bytes_ *= factor


def _distinct_aspects(grouped: bool) -> list[tuple[int, int]]:
    return list(ASPECTS) if grouped else [(channels, channels) for channels in dict.fromkeys(c for c, _ in ASPECTS)]


def _few_rows(width: int, grouped: bool) -> list[Size]:
    """From one row up to where the powers of two of bytes begin."""
    found = []
    for channels, length in _distinct_aspects(grouped):
        rows = 1
        while rows * channels * width < _LEAST_BYTES:
            found.append(Size(rows, channels, channels // length if grouped else 1))
            rows *= 8
    return found


def _aspects(width: int, grouped: bool, most_bytes: int) -> list[Size]:
    channels, found = LEAST_CHANNELS, []
    while channels <= MOST_CHANNELS:
        rows = min(_ASPECT_BYTES, most_bytes) // (channels * width)
        if 1 <= rows <= MOST_ROWS:
            found.append(Size(rows, channels, max(1, channels // 32) if grouped else 1))
        channels *= 2
    return found


def _neighbours(size: Size, grouped: bool, which: int) -> list[Size]:
    """n + 1, n + 4 or the nearest prime, of the channels (in a group) and of the rows."""

    def beside(n: int) -> int:
        return (n + 1, n + 4, nearest_prime(n))[which]

    length = size.channels // size.groups
    found = [Size(size.rows, beside(length) * size.groups, size.groups)]
    if 8 <= size.rows < MOST_ROWS:
        found.append(Size(beside(size.rows), size.channels, size.groups))
    return found
