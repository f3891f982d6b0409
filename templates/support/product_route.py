"""Where splitting the operands of a float32 product is worth it: faster than the library's product.

The figures of compute capability 9.0 are from benchmarks/results/split_times_h200.csv, those of
others from their data sheets. Where fp16 tensor cores are only a few times as fast as float32 (8.6,
8.9, 12.0), nothing is gained.
"""

from typing import NamedTuple

# Below so many terms, the sums of tensor cores may be less accurate than float32's: of our kernel,
# and of the library, whose sums are truncated in longer chunks.
LEAST_TERMS = 192
LEAST_TERMS_OF_LIBRARY = 8192
_TILE = 128  # rows and columns that a multiprocessor computes at a time


class Speed(NamedTuple):
    """Of one kind of GPU, in a microsecond: operations in float32 and of fp16 tensor cores, bytes.

    term: microseconds of one term of the sums of a tile. chunk: terms that the library adds up
    before it adds them to what is in memory; 0: a kernel of ours adds them up in registers.
    """

    float32: float
    tensor_cores: float
    memory: float
    term: float
    chunk: int = 0


SPEEDS = {
    (8, 0): Speed(1.9e7, 2.4e8, 1.3e6, 0.0, 256),
    (9, 0): Speed(5.1e7, 6.4e8, 2.8e6, 0.0135),
    (10, 0): Speed(7.0e7, 1.5e9, 6.0e6, 0.0, 256),
    (10, 3): Speed(7.0e7, 1.5e9, 6.0e6, 0.0, 256),
}
_LAUNCH = 4.0  # microseconds


def is_worth_splitting(
    capability, multiprocessors, rows, channels, in_features, *, weight_kept, gradients
):
    """Whether a call is faster with split operands, and as accurate.

    capability: (major, minor). weight_kept: whether the pieces of the weight are there already.
    gradients: whether the backward pass will want both of its products.
    """
    speed = SPEEDS.get(capability)
    lengths = (rows, channels, in_features) if gradients else (in_features,)
    if speed is None:
        return False
    if min(lengths) < (LEAST_TERMS_OF_LIBRARY if speed.chunk else LEAST_TERMS):
        return False
    sizes = (rows, channels, in_features)
    mine = split_times(speed, multiprocessors, *sizes, weight_kept=weight_kept)
    library = library_times(speed.float32, *sizes)
    passes = 2 if gradients else 1
    return sum(mine[:passes]) < sum(library[:passes])


def split_times(speed, multiprocessors, rows, channels, in_features, *, weight_kept):
    """Microseconds of the forward and of the backward products, and of splitting their operands."""
    forward = _split(speed, rows * in_features)
    if not weight_kept:
        forward += _split(speed, channels * in_features)
    forward += _product(speed, multiprocessors, rows, channels, in_features)
    backward = 2 * _split(speed, rows * channels)
    backward += _product(speed, multiprocessors, rows, in_features, channels)
    backward += _product(speed, multiprocessors, channels, in_features, rows)
    return forward, backward


def library_times(operations, rows, channels, in_features):
    """Microseconds of the library's products forward and backward, at so many operations each."""
    one = 2 * rows * channels * in_features / operations
    return one, 2 * one


def _split(speed, elements):
    """Microseconds: a matrix is read, and as many bytes are written."""
    return _LAUNCH + 8 * elements / speed.memory


def _product(speed, multiprocessors, rows, columns, terms):
    """Microseconds of the three products of pieces."""
    busy = 6 * rows * columns * terms / speed.tensor_cores
    if speed.chunk:
        chunks = -(-terms // speed.chunk)
        return 2 * _LAUNCH * chunks + busy + 8 * rows * columns * chunks / speed.memory
    tiles = -(-rows // _TILE) * -(-columns // _TILE)
    return 2 * _LAUNCH + max(busy, -(-tiles // multiprocessors) * terms * speed.term)
