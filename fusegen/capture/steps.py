"""A region as the chain of a spec, and which value of the graph is which argument of the chain's ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from fusegen.aten import table
from fusegen.aten.nodes import argument, operator_of, shape_of, value_of
from fusegen.capture.chain import Chain, NotAChain, name_of
from fusegen.capture.partition import Region
from fusegen.capture.roles import DTYPES, Frame, changes_nothing, correction, is_constant, is_narrower, kind_of
from fusegen.spec.names import free_name

# The keys of a norm's numbers, by their places among the operator's arguments.
_NUMBERS: dict[str, dict[str, int]] = {
    "batch_norm": {"momentum": 6, "eps": 7},
    "layer_norm": {"eps": 4},
    "rms_norm": {"eps": 3},
    "group_norm": {"num_groups": 1, "eps": 4},
    "instance_norm": {"eps": 7},
}
_DEFAULT_EPS = 1e-5
_COMMUTATIVE = ("add", "mul", "minimum", "maximum")
# What an operand that is one for each channel is called, by the op.
_OF_CHANNELS = {"mul": "scale", "add": "shift"}
# The dimensions of positions, by their number.
_POSITIONS = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}


def chain_of(region: Region) -> Chain:
    """The chain of a region. Raises NotAChain."""
    return _Writer(region).chain


@dataclass(frozen=True)
class _Leaf:
    """A tensor that the region takes, by the key and the name that a step has for it."""

    key: str
    name: str


class _Writer:
    def __init__(self, region: Region) -> None:
        self.frame = region.frame
        self._inside = set(region.nodes)
        self._taken = {"result", "batch", "tokens", "channels", "length", "height", "width", "depth", "num_groups"}
        self._leaves: dict[fx.Node, _Leaf] = {}
        self._shapes: dict[str, list[int | str]] = {}
        self._steps: dict[fx.Node, list[dict[str, Any]]] = {}  # the last one makes the node's value
        self._same: dict[fx.Node, fx.Node] = {}  # what changes nothing in a chain -> what it is of
        self._running: fx.Node | None = None
        self._arguments: dict[str, dict[str, Any]] = {"channels": {"type": "dim"}}
        self._modes: set[bool] = set()
        self.chain = Chain({})
        self._first = ""  # the name of the first input
        self._take_first(region)
        for node in region.nodes:
            self._add(node)
        self._finish(region)

    def _take_first(self, region: Region) -> None:
        """Gives the first input, of which a spec has every size, to the first step that has one."""
        for node in region.nodes:
            for each in node.all_input_nodes:
                if each not in self._inside and self.frame.lay(shape_of(each)) == "full":
                    self._first = self._leaf(each, "x").name
                    return
        raise NotAChain("no value of all rows and channels comes into it")

    def _finish(self, region: Region) -> None:
        self._add_casts(region.results)
        steps = [step for each in self._steps.values() for step in each]
        made = list(dict.fromkeys(self._root(node) for node in region.results))
        last = list(self._steps)[-1]
        outputs = ["result" if node is last else self._saved(node) for node in made]
        dims: dict[str, int] = {"batch": 32, "channels": int(self.frame.channels)}
        if self.frame.form == "images":
            dims |= dict.fromkeys(_POSITIONS[len(self.frame.sizes) - 2], 14)
        elif self.chain.samples:
            dims = {"batch": 32, "tokens": 256, "channels": dims["channels"]}
            rows = {name: shape for name, shape in self._shapes.items() if shape and name not in self.chain.samples}
            self._shapes |= {name: [batch, "tokens", *rest] for name, (batch, *rest) in rows.items()}
        self.chain.data = {
            "dims": dims,
            "arguments": self._arguments,
            "inputs": self._shapes,
            "chain": steps,
            **({} if outputs == ["result"] else {"outputs": outputs}),
        }
        self.chain.channels = set(self.chain.tensors) - set(self._shapes)
        self.chain.results = [(node, made.index(self._root(node))) for node in region.results]
        if len(self._modes) > 1:
            raise NotAChain("some of its operators run as in training, and some as in evaluation")
        self.chain.training = self._modes == {True}
        nodes = [*self.chain.tensors.values(), *made]
        other = {value.dtype for node in nodes if (value := value_of(node)) is not None} - DTYPES
        if other:
            raise NotAChain(f"there are no kernels for {', '.join(map(str, other))}")

    def _add_casts(self, results: Sequence[fx.Node]) -> None:
        """Steps for results that are casts, which are stored in their dtypes; there is none where all tensors have 16
        bits, and results in any case. Not for one of several casts of a value: PyTorch adds their gradients in the
        dtype of the value."""
        values = [value_of(node) for node in self.chain.tensors.values()]
        if all(value is None or value.dtype.itemsize == 2 for value in values):
            return
        casts: dict[fx.Node, list[fx.Node]] = {}
        for node in results:
            if node in self._same:
                casts.setdefault(self._root(node), []).append(node)
        for root, (cast, *others) in casts.items():
            if root in self._steps and not others and is_narrower(cast):
                del self._same[cast]
                self._step(cast, root, {"op": "cast", "dtype": name_of(cast.meta["val"].dtype)})

    # Values

    def _new(self, wanted: str) -> str:
        """The name, or one like it that nothing else has."""
        name = free_name(wanted, self._taken)
        self._taken.add(name)
        return name

    def _root(self, node: Any) -> fx.Node:
        """What the node's value is in the chain: kernels compute in float32, so casts within it change nothing."""
        while node in self._same:
            node = self._same[node]
        return node

    def _leaf(self, node: fx.Node, wanted: str) -> _Leaf:
        """What a step calls a tensor that comes into the region."""
        node = self._root(node)
        if node not in self._leaves:
            lay = self.frame.lay(shape_of(node))
            if lay is None:
                raise NotAChain(f"a tensor of the sizes {list(shape_of(node))} meets {list(self.frame.sizes)}")
            key = "parameter" if lay == "channel" else "input"
            name = self._new(wanted)
            self._leaves[node] = _Leaf(key, name)
            if key == "input":
                self._shapes[name] = _shape(self.frame, lay)
            if lay == "sample":
                self.chain.samples.add(name)
            self.chain.tensors[name] = node
        return self._leaves[node]

    def _saved(self, node: fx.Node) -> str:
        step = self._steps[node][-1]
        if "save" not in step:
            step["save"] = self._new("value")
        return step["save"]

    def _operand(self, node: fx.Node, op: str) -> dict[str, Any]:
        """The key of the other operand of a step."""
        node = self._root(node)
        if node in self._steps:
            return {"value": self._saved(node)}
        wanted = _OF_CHANNELS.get(op, "other") if self._is_channel(node) else "other"
        leaf = self._leaf(node, wanted)
        if leaf.key == "input":
            return {"input": leaf.name}
        return self._parameter(leaf.name)

    def _parameter(self, name: str) -> dict[str, Any]:
        """The key of an operand that is one for each channel, with its shape where it comes first."""
        known = any(step.get("parameter") == name for each in self._steps.values() for step in each)
        sizes = ["channels", *(1 for _ in self.frame.sizes[2:])] if self.frame.form == "images" else ["channels"]
        return {"parameter": name} if known else {"parameter": name, "shape": sizes, "init": "ones"}

    def _is_channel(self, node: fx.Node) -> bool:
        return self.frame.lay(shape_of(node)) == "channel"

    # Steps

    def _add(self, node: fx.Node) -> None:
        kind = kind_of(node)
        if changes_nothing(node):
            self._same[node] = node.args[0]  # type: ignore[assignment]
        elif kind == "dropout":
            self._dropout(node)
        elif kind == "norm":
            self._norm(node, operator_of(node)[1])
        elif arithmetic := table.find(table.ARITHMETIC, node.target):
            self._arithmetic(node, *arithmetic)
        elif reduction := table.find(table.OVER_CHANNELS, node.target):
            self._reduction(node, reduction[0])
        elif function := table.find(table.FUNCTIONS, node.target):
            self._function(node, function)

    def _step(self, node: fx.Node, source: Any, data: dict[str, Any]) -> None:
        """Adds a step that goes on from `source`."""
        source = self._root(source)
        op = data.pop("op")
        begin: dict[str, Any] = {"op": op}
        if source in self._steps:
            if source is not self._running:
                begin["from"] = self._saved(source)
        elif self._steps or self._leaf(source, "other").name != self._first:
            begin["from"] = self._source(source)
        self._steps[node] = [{**begin, **data}]
        self._running = node

    def _source(self, node: fx.Node) -> str:
        leaf = self._leaf(node, "other")
        if leaf.key != "input":
            raise NotAChain("a value of channels alone is computed")
        return leaf.name

    def _function(self, node: fx.Node, function: table.Function) -> None:
        op, keys = function.op, {}
        for index, (key, default) in enumerate(function.keys.items(), 1):
            value = argument(node, index, key)
            value = default if value is None else value
            if value is not None:
                keys[key] = value if isinstance(value, str) else _number(value)
        if op == "pow" and keys["exponent"] == 2:
            op, keys = "square", {}
        self._step(node, node.args[0], {"op": op, **keys})

    def _arithmetic(self, node: fx.Node, op: str, is_swapped: bool) -> None:
        left, right = node.args[:2]
        left, right = (right, left) if is_swapped else (left, right)
        swap = not isinstance(left, fx.Node) or (isinstance(right, fx.Node) and self._goes_on_better(right, left))
        source, other = (right, left) if swap else (left, right)
        if not isinstance(other, fx.Node):
            keys: dict[str, Any] = {"constant": _number(other)}
        elif self._root(other) is self._root(source) and op == "mul":
            self._step(node, source, {"op": "square"})
            return
        else:
            keys = self._operand(other, op)
        if swap and op not in _COMMUTATIVE:
            keys["swap"] = True
        self._step(node, source, {"op": op, **keys})

    def _goes_on_better(self, right: fx.Node, left: fx.Node) -> bool:
        """Whether a step goes on from the right operand rather than from the left one."""
        left, right = self._root(left), self._root(right)
        if self._is_channel(left) or right is self._running:
            return left is not self._running
        if not self._steps and right in self._leaves and self._leaves[right].name == self._first:
            return left not in self._leaves
        return self._is_full(right) and not self._is_full(left) and left is not self._running

    def _is_full(self, node: fx.Node) -> bool:
        return self.frame.lay(shape_of(node)) == "full"

    def _dropout(self, node: fx.Node) -> None:
        self._modes.add(True)
        name = self._new("drop")
        self._step(node, node.args[0], {"op": "dropout", "name": name, "p": self._argument(f"{name}_p", 0.1)})
        self.chain.numbers[f"{name}_p"] = float(argument(node, 1, "p", 0.5))

    def _norm(self, node: fx.Node, op: str) -> None:
        name = self._new("norm")
        keys: dict[str, Any] = {"op": op, "name": name}
        for key, at in _NUMBERS[op].items():
            value = argument(node, at, key, None if op == "rms_norm" else _DEFAULT_EPS)
            value = torch.finfo(torch.float32).eps if value is None else value  # as F.rms_norm, in 16 bits too
            if key == "num_groups":
                keys[key] = self._argument("num_groups", int(value), typical=int(value))
                self.chain.numbers["_groups"] = int(value)
                continue
            keys[key] = self._argument(f"{name}_{key}", 0.1 if key == "momentum" else _DEFAULT_EPS)
            self.chain.numbers[f"{name}_{key}"] = _number(value)
        _, places = table.MODULES[op]
        tensors = {key: argument(node, at, key) for at, key in places.items()}
        if op == "batch_norm":
            self._modes.add(bool(argument(node, 5, "training")) or tensors["running_mean"] is None)
            # The graph counts the batches by an operator of its own.
            self.chain.tensors[f"{name}_num_batches_tracked"] = None
        weight, bias = tensors["weight"], tensors.get("bias")
        alone = None
        if (weight is None) != (bias is None) and (weight is None or op not in ("layer_norm", "rms_norm")):
            alone = "weight" if bias is None else "bias"
            weight = bias = None
        if (weight is None) != (op == "instance_norm"):
            keys["affine"] = weight is not None
        elif bias is None and op == "layer_norm":
            keys["bias"] = False
        for key, tensor in tensors.items():
            if tensor is not None and shape_of(tensor) != (self.frame.channels,):
                raise NotAChain(f"the {key} of {op} has the sizes {list(shape_of(tensor))}")
            if key != alone:
                self.chain.tensors[f"{name}_{key}"] = tensor
        self._step(node, node.args[0], keys)
        if alone is not None:  # a norm has both or none of them
            self._steps[node].append(self._of_channels(tensors[alone], "mul" if alone == "weight" else "add"))

    def _of_channels(self, tensor: fx.Node, op: str) -> dict[str, Any]:
        """A step with a tensor [channels], whatever the dimension of these in the values."""
        if tensor not in self._leaves:
            self._leaves[tensor] = _Leaf("parameter", self._new(_OF_CHANNELS[op]))
            self.chain.tensors[self._leaves[tensor].name] = tensor
        return {"op": op, **self._parameter(self._leaves[tensor].name)}

    def _reduction(self, node: fx.Node, op: str) -> None:
        keys: dict[str, Any] = {"keepdim": True}
        if op in ("var", "std"):
            keys["correction"] = correction(node)
        self._step(node, node.args[0], {"op": op, **keys})

    def _argument(self, name: str, default: float, typical: int | None = None) -> str:
        """The name of an argument of the constructor that is a number."""
        self._arguments[name] = (
            {"type": "float", "default": default} if typical is None else {"type": "int", "typical": typical}
        )
        return name


def _shape(frame: Frame, lay: str) -> list[int | str]:
    if lay == "number":
        return []
    if frame.form == "rows":  # a value of each sample meets all its tokens
        return ["batch", 1 if lay == "row" else "channels"]
    positions = _POSITIONS[len(frame.sizes) - 2]
    return ["batch", "channels", *(positions if lay == "full" else (1 for _ in positions))]


def _number(value: Any) -> float:
    """A number of the graph that is the same in every call. Raises NotAChain."""
    if not isinstance(value, int | float):
        raise NotAChain("a number of it changes from call to call")
    if not is_constant(value):
        raise NotAChain(f"no spec can have the number {value}")
    return value
