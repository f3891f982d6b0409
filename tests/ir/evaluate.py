"""A graph's values in PyTorch's arithmetic, one rounding for each node."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from fusegen.ir.extent import CHANNEL, ROW, SCALAR, Extent
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
    "at_channel": lambda g, channel, chosen: torch.where(channel == chosen, g, 0),
    "at_ties": lambda g, x, largest, ties: g * (x == largest) / ties,
    "vanishing": lambda x: x * 0,
    "average_factor": lambda momentum, batches: momentum,
    "standardize": lambda x, mean, rstd: (x - mean) * rstd,
    "rescale": torch.mul,
    "standardize_backward": lambda g, hat, rstd, s, q, n: rstd * (g - (s + hat * q) * n),
    "rescale_backward": lambda g, hat, rrms, q, n: rrms * (g - hat * q * n),
}


class Values:
    """Values of the nodes of a program over rows x channels, all in one dtype.

    given: leaves and other nodes that lie in memory, by name: full tensors as [rows, channels], others broadcastable.
    """

    def __init__(self, rows: int, channels: int, dtype: torch.dtype, given: Mapping[str, Tensor]) -> None:
        self.rows, self.channels, self.dtype = rows, channels, dtype
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
                return self._sum(operands[0], node.extent)
            case "channel":
                return torch.arange(self.channels, dtype=self.dtype)
            case "max" | "argmax":
                assert node.extent == ROW
                largest = operands[0].expand(self.rows, self.channels).max(1, keepdim=True)
                return largest.values if node.op == "max" else largest.indices.to(self.dtype)
            case "amax" | "peak" | "ties":
                assert node.extent == ROW
                elements = operands[0].expand(self.rows, self.channels)
                largest = elements.amax(1, keepdim=True)
                return (elements == largest).sum(1, keepdim=True).to(self.dtype) if node.op == "ties" else largest
            case "moments":
                mean = self._sum(operands[0], node.extent) / self._length(node.extent)
                distance = self._sum((operands[0] - mean).square(), node.extent)
                return mean, distance / self._length(node.extent)
            case "mean":
                return operands[0][0]
            case "variance":
                return operands[0][1]
        return _FUNCTIONS[node.op](*operands)

    def _length(self, extent: Extent) -> int:
        if extent == CHANNEL:
            return self.rows
        return self.channels if extent == ROW else self.channels // extent.blocks

    def _sum(self, x: Tensor, extent: Extent) -> Tensor:
        if extent == SCALAR:
            return x.sum()
        x = x.expand(self.rows, self.channels)
        if extent == CHANNEL:
            return x.sum(0, keepdim=True)
        if extent == ROW:
            return x.sum(1, keepdim=True)
        parts = x.reshape(self.rows, extent.blocks, -1)
        return parts.sum(-1, keepdim=True).expand(parts.shape).reshape(x.shape)
