"""The copies of images that give them zeros as further channels, bit by bit."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer
from tests.kernels.building import compiled
from tests.kernels.test_image_copy import KINDS, SOURCE

NARROW = [kind for kind, (_, _, made) in KINDS.items() if made.itemsize == 2]
SIZES = [  # images, channels, positions, channels of the result
    (1, 1, 1, 32),
    (2, 3, 49, 32),
    (3, 8, 300, 32),
    (2, 12, 257, 32),
    (1, 24, 1030, 32),  # several tiles
    (2, 31, 64, 32),
    (2, 40, 136, 64),
    (1, 56, 61, 64),
    (1, 65, 40, 96),  # several tiles of rows
    (1, 135, 24, 160),  # the last of them zeros alone
    (1, 100, 9, 104),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory, emulation_cache):
    return compiled(SOURCE, tmp_path_factory.mktemp("programs"), emulation_cache, checked=True)


def run(library, images, channels, positions, more, kind="bfloat16", *, exchanged=False, misaligned=False, seed=0):
    """exchanged: whether the channels are the innermost dimension already. misaligned: whether the given tensor begins
    within a vector."""
    mode, given, made = KINDS[kind]
    values = torch.randn(images, channels, positions, generator=torch.Generator().manual_seed(5)).to(given)
    source = values.mT.contiguous() if exchanged else values
    x = Buffer.from_tensor(source, offset_bytes=given.itemsize * misaligned, readonly=True)
    y = Buffer.poisoned((images, positions, more), made)
    sizes = (images, channels, positions, given.itemsize, made.itemsize)
    library.call("image_copy", mode, x, y, *sizes, more, int(exchanged), seed=seed)
    assert torch.equal(y.tensor()[..., :channels], values.to(made).mT)
    assert not y.tensor()[..., channels:].view(torch.int16).any()


@pytest.mark.parametrize("exchanged", [False, True], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize("kind", NARROW)
@pytest.mark.parametrize(("images", "channels", "positions", "more"), SIZES)
def test_each_size(library, images, channels, positions, more, kind, exchanged):
    run(library, images, channels, positions, more, kind, exchanged=exchanged)


@pytest.mark.parametrize("exchanged", [False, True], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize("kind", NARROW)
@pytest.mark.parametrize("channels", [8, 12, 40])
def test_a_source_that_begins_within_a_vector(library, channels, kind, exchanged):
    run(library, 2, channels, 72, 64, kind, exchanged=exchanged, misaligned=True)


@pytest.mark.parametrize(
    ("itemsize", "more", "exchanged", "offset"),
    [(4, 32, 0, 0), (4, 3, 1, 0), (2, 33, 0, 0), (2, 33, 1, 0), (2, 0, 0, 0), (2, 32, 0, 2), (2, 32, 1, 2)],
    ids=str,
)
def test_no_such_kernel(library, itemsize, more, exchanged, offset):
    """Of 32 bits, of parts of vectors, of fewer channels, and where the result begins within a vector."""
    dtype = {2: torch.bfloat16, 4: torch.float32}[itemsize]
    x, y = Buffer.poisoned((1, 3, 40), dtype), Buffer.poisoned((1, 40, 40), dtype, offset_bytes=offset)
    with pytest.raises(Exception, match="1"):
        library.call("image_copy", 0, x, y, 1, 3, 40, itemsize, itemsize, more, exchanged)
