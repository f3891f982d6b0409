"""A graph's values in PyTorch's arithmetic, one rounding for each node."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from fusegen.ir.axes import Axes
from fusegen.ir.graph import Node, ancestors


def _relu_backward(g: Tensor, y: Tensor) -> Tensor:
    return torch.where(y <= 0, 0, g)


_FUNCTIONS = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "negate": torch.neg,
    "square": torch.square,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "detach": torch.Tensor.detach,
    "expand": lambda x: x,
    "exp": torch.exp,
    "log": torch.log,
    "softmax": lambda power, inverse, x: power * inverse,
    "log_softmax": lambda distance, log, x: distance - log,
    "reciprocal_backward": lambda g, y: -g * y * y,
    "rsqrt_backward": lambda g, y: -g / 2 * y**3,
    "sigmoid_backward": lambda g, y: g * y * (1 - y),
    "relu": F.relu,
    "relu_backward": _relu_backward,
    "sigmoid": torch.sigmoid,
    "silu": torch.mul,
    "silu_slope": lambda x, gate: gate * (1 + x * (1 - gate)),
    "silu_backward": torch.mul,
    "tanh": torch.tanh,
    "tanh_backward": lambda g, y: g * (1 - y * y),
    "finite_or_zero": lambda x: torch.where(x.isinf(), 0, x),
    "at_channel": lambda g, channel, chosen: torch.where(channel == chosen, g, 0),
    "at_ties": lambda x, largest, share, nothing: torch.where(x == largest, share, nothing),
    "vanishing": lambda x: x * 0,
    "average_factor": lambda momentum, batches: momentum,
    "standardize": lambda x, mean, rstd: (x - mean) * rstd,
    "rescale": torch.mul,
    "standardize_backward": lambda g, hat, rstd, s, q, n: rstd * (g - (s + hat * q) * n),
    "rescale_backward": lambda g, hat, rrms, q, n: rrms * (g - hat * q * n),
}


class Values:
    """Values of the nodes of a program, all in one dtype.

    lengths: of the axes of an element, such as {"N": 5, "C": 6}. given: leaves and other nodes that lie in memory, by
    name, broadcastable to these lengths.
    """

    def __init__(self, lengths: Mapping[str, int], dtype: torch.dtype, given: Mapping[str, Tensor]) -> None:
        self.lengths, self.dtype = lengths, dtype
        self.given = {name: value.to(dtype) for name, value in given.items()}

    def of(self, sinks: Mapping[str, Node], known: Mapping[Node, str]) -> dict[str, Tensor]:
        """Each sink's value. known: nodes that lie in memory, and their names there."""
        found: dict[Node, object] = {}
        for node in ancestors(sinks.values(), known):
            found[node] = self.given[known[node]] if node in known else self._value(node, found)
        return {name: found[node] for name, node in sinks.items()}

    def _value(self, node: Node, found: Mapping[Node, object]):
        operands = [found[operand] for operand in node.operands]
        match node.op:
            case "tensor" | "scalar":
                return self.given[node.attribute]
            case "literal":
                return torch.tensor(node.attribute, dtype=self.dtype)
            case "count":
                return torch.tensor(float(self._length(node.attribute)), dtype=self.dtype)
            case "sum":
                return self._reduced(Tensor.sum, operands[0], node)
            case "max" | "amax" | "peak":
                return self._reduced(Tensor.amax, operands[0], node)
            case "channel":
                return self._numbers("C")
            case "argmax":
                assert "C" in node.operands[0].axes and "C" not in node.axes
                (dim,) = (index for index, name in enumerate(self.lengths) if name == "C")
                elements = operands[0].expand([*self.lengths.values()])
                return elements.max(dim, keepdim=True).indices.to(self.dtype)
            case "ties":
                largest = self._reduced(Tensor.amax, operands[0], node)
                return self._reduced(Tensor.sum, (operands[0] == largest).to(self.dtype), node)
            case "moments":
                mean = self._reduced(Tensor.mean, operands[0], node)
                return mean, self._reduced(Tensor.mean, (operands[0] - mean).square(), node)
            case "mean":
                return operands[0][0]
            case "variance":
                return operands[0][1]
        return _FUNCTIONS[node.op](*operands)

    def _length(self, axes: Axes) -> int:
        """How many elements one value over these axes stands for."""
        values = [axes.count(name, length) for name, length in self.lengths.items()]
        return math.prod(self.lengths.values()) // math.prod(values)

    def _numbers(self, axis: str) -> Tensor:
        shape = [length if name == axis else 1 for name, length in self.lengths.items()]
        return torch.arange(self.lengths[axis], dtype=self.dtype).reshape(shape)

    def _reduced(self, reduction: Callable[..., Tensor], x: Tensor, node: Node) -> Tensor:
        """x, a value of the node's operand, reduced. A value for each block of an axis is repeated within the block."""
        over = node.operands[0].axes
        x = x.expand([length if name in over else 1 for name, length in self.lengths.items()])
        counts = [node.axes.count(name, size) for name, size in zip(self.lengths, x.shape, strict=True)]
        blocks = [(count, size // count) for count, size in zip(counts, x.shape, strict=True)]
        parts = x.reshape([size for block in blocks for size in block])
        result = reduction(parts, tuple(range(1, parts.dim(), 2)), keepdim=True)
        repeated = [(count, size if count > 1 else 1) for count, size in blocks]
        return result.expand([size for block in repeated for size in block]).reshape([a * b for a, b in repeated])
