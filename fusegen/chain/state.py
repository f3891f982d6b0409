"""What the module around a chain owns: parameters, buffers, constants, batch norms and dropouts."""

from __future__ import annotations

from dataclasses import dataclass

from fusegen.ir.axes import Axes, Dim
from fusegen.ir.graph import Node


@dataclass(frozen=True)
class Parameter:
    """A tensor of the module that the tail reads, and that no call changes.

    attribute: where the module holds it, such as "bn.weight". in_product: it is a linear layer's bias. In 16-bit
    dtypes the library adds it, before the product is rounded, and the kernels get a null pointer: rounding the product
    first would lose the sum's low bits where the two cancel. In float32 the kernels add it: nothing is lost, and the
    library's epilogue that would is slower than the plain product.
    repeated: it has a value for each channel of a block, and the ops take it repeated for all blocks.
    trailing: it varies over the dimensions that are the chain's channels, or some of them, and the ops take it with a
    value for each channel.
    learnt: a gradient flows to it. The module has one that is not as a buffer.
    """

    name: str
    attribute: str
    shape: tuple[Dim, ...]
    axes: Axes
    in_product: bool = False
    repeated: bool = False
    trailing: bool = False
    learnt: bool = True


@dataclass(frozen=True)
class Buffer:
    """A tensor of the module's state that is not learnt.

    integer: int64, not the parameters' dtype: a count of batches, to which a forward pass in training adds one. update:
    its new value, if a forward pass changes it.
    """

    name: str
    attribute: str
    axes: Axes
    integer: bool = False
    update: Node | None = None


@dataclass(frozen=True)
class Constant:
    """A number that the module holds at run time, such as `self.divide_value` or `self.bn.eps`."""

    name: str
    attribute: str


@dataclass(frozen=True)
class RankStatistics:
    """The statistics of all ranks for a batch norm, which come to the graph as leaves.

    name: the norm. operand: the value that it normalises. mean, variance: one value a channel, of the rows of all
    ranks, the variance biased.
    """

    name: str
    operand: Node
    mean: Node
    variance: Node


@dataclass(frozen=True)
class BatchNorm:
    """A batch norm.

    name: the layer. tracked: whether it keeps running statistics. ranks: the statistics of all ranks, in a chain that
    was built so.
    """

    name: str
    tracked: bool
    ranks: RankStatistics | None = None


@dataclass(frozen=True)
class Dropout:
    """A dropout.

    name: the module's attribute. p: the ops' name of its constant p. by_sample: whether one factor is drawn for each
    sample, an index of the first dimension, not for each element. seed: what the ops call the tensor that all dropouts
    of a chain draw from.
    """

    name: str
    p: str
    by_sample: bool
    seed: str
