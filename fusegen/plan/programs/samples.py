"""Which gradients are sums over the rows of each sample.

An input with fewer rows than the program may have one row for a block of those: its *sample*. Its gradient is the sum
of that of the sample's rows. A program takes such sums in its last pass, as it takes sums of columns: each block of a
kernel then has rows of one sample at a time, and partial results of a sample become a row of the gradient. All such
sums of a program are of the same samples.
"""

from __future__ import annotations

from fusegen.chain.model import Chain
from fusegen.ir.axes import Dim


def summed_inputs(chain: Chain) -> list[str]:
    """The inputs whose gradients kernels sum. PyTorch sums those of the others that have fewer rows."""
    if chain.rank_norms:
        return []
    found = [name for name, each in chain.compact.items() if each.rows == "first" and name in chain.further]
    rows = {name: _rows(chain, name) for name in found}
    if chain.spatial:  # a tile has positions of one image
        return [name for name in found if rows[name] == (chain.inputs[0].shape[0],)]
    return [name for name in found if rows[name] == rows[found[0]]]


def _rows(chain: Chain, name: str) -> tuple[Dim, ...]:
    """The dimensions of an input that the rows of its samples belong to."""
    shape = next(each.shape for each in chain.inputs if each.name == name)
    channel = 1 if chain.spatial else len(shape) - 1
    return tuple(dim for index, dim in enumerate(shape) if index != channel and dim != 1)
