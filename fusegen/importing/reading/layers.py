"""Layers and norms of a trace: the submodule that each is, or the parameters that it takes."""

from __future__ import annotations

from typing import Any

from torch import fx, nn

from fusegen.aten import table as aten
from fusegen.importing.reading.values import CHANNELS, ROWS, SIZES, Layout, Number, Value
from fusegen.importing.traces.arguments import Arguments
from fusegen.importing.traces.source_locations import refusal
from fusegen.importing.traces.trace import Leaf, Trace

# Modules of several dimensions, by what they call.
_CLASSES: dict[str, tuple[type, ...]] = {
    "batch_norm": (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
    "instance_norm": (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
}
# Where functions of norms have a weight, a bias and an eps.
_FUNCTIONAL: dict[str, tuple[int | None, int | None, int]] = {
    **dict.fromkeys(("layer_norm", "group_norm"), (2, 3, 4)),
    "rms_norm": (2, None, 3),
    "instance_norm": (None, None, 7),
}

_FLATTENED = "flatten the rows in front of the module"
_LAST = "the channels are the last dimension of the first input: import what is over another one by itself"
_SECOND = "where a module reduces another dimension than the last, the channels are dimension 1 of the first input"


class Layers:
    """Finds the submodule of an operator, and the keys of the step that it is."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def counts_batches(self, name: str) -> bool:
        """Whether the buffer is the count of a batch norm, which training moves."""
        path, _, key = name.rpartition(".")
        return key == "num_batches_tracked" and isinstance(self.part(path), nn.modules.batchnorm._NormBase)

    def is_held(self, leaf: Leaf) -> bool:
        """Whether it is a buffer that a chain can have as one: of the state_dict, and no statistic of a norm."""
        path, _, key = leaf.name.rpartition(".")
        part = self.part(path)
        if leaf.kind != "buffer" or part is None or isinstance(part, nn.modules.batchnorm._NormBase):
            return False
        return key not in part._non_persistent_buffers_set

    def owner(self, node: fx.Node, op: str) -> str | None:
        """The path of the submodule whose tensors, all of them, the operator takes; None if there is none."""
        kind, positions = aten.CONVOLUTIONS.get(op) or aten.MODULES[op]
        path, classes = self.trace.path(node), _CLASSES.get(op) or getattr(nn, kind)
        if op == "linear" and not isinstance(self.part(path), classes):
            path = self._holder(node)  # of a layer whose tensors are taken, and which is not called
        part = self.part(path)
        if not isinstance(part, classes) or not path:
            return None
        for position, key in positions.items():
            given = node.args[position] if position < len(node.args) else node.kwargs.get(key)
            leaf = self.trace.leaves.get(given) if isinstance(given, fx.Node) else None
            if (leaf.name if leaf else None) != (f"{path}.{key}" if getattr(part, key, None) is not None else None):
                return None
        return path

    def _holder(self, node: fx.Node) -> str:
        """The path of the submodule that has the weight of a linear layer."""
        weight = node.args[1]
        leaf = self.trace.leaves.get(weight) if isinstance(weight, fx.Node) else None
        return leaf.name.rpartition(".")[0] if leaf else ""

    def step(
        self, node: fx.Node, op: str, x: Value, first: Layout, arguments: Arguments
    ) -> tuple[str, dict[str, Any], list[fx.Node]]:
        """The submodule's name, the step's keys, and the tensors that a norm without a submodule is multiplied by and
        moved by. first: what the dimensions of the first input are."""
        is_image = arguments.positions is not None and len(x.layout) > 2 and None not in x.layout
        self._check_channels(node, op, x, first, is_image)
        path = self.owner(node, op)
        if path is None:
            return "", *self._functional(node, op, x, arguments)
        part: Any = self.part(path)
        keys: dict[str, Any] = {}
        if op == "instance_norm":
            keys = {"eps": Number(part.eps, arguments.of_attribute(path, "eps")), **_momentum(part, path, arguments)}
            keys |= {"affine": part.affine, "track_running_stats": part.track_running_stats} if is_image else {}
            self._check_mode(node, path, node.args[5])
            return path, keys, []
        if op == "linear":
            return path, {"out_features": CHANNELS, "bias": part.bias is not None}, []
        if op == "prelu":
            count = CHANNELS if part.num_parameters > 1 else Number(1)
            return path, {"num_parameters": count, "init": Number(float(part.init))}, []
        if op == "group_norm":
            keys["num_groups"] = Number(part.num_groups, arguments.of_attribute(path, "num_groups"))
        keys["eps"] = None if part.eps is None else Number(part.eps, arguments.of_attribute(path, "eps"))
        keys["affine"] = part.weight is not None
        if op == "layer_norm" and keys["affine"]:
            keys["bias"] = part.bias is not None
        keys |= _several(node, op, x)
        if op == "batch_norm":
            keys |= _momentum(part, path, arguments)
            keys["track_running_stats"] = part.running_mean is not None
            self._check_mode(node, path, node.args[5])
        return path, keys, []

    def _check_mode(self, node: fx.Node, path: str, by_batch: Any) -> None:
        """A norm has the statistics of the batch in training, and where it has no others."""
        part: Any = self.part(path)
        if bool(by_batch) != (self.trace.training or part.running_mean is None):
            hint = "the chain's norm follows the module's train() and eval()"
            raise refusal("FG709", f"the norm '{path}' has a mode of its own", self.trace.place(node), hint)

    def _functional(
        self, node: fx.Node, op: str, x: Value, arguments: Arguments
    ) -> tuple[dict[str, Any], list[fx.Node]]:
        """A norm of tensors that no norm module holds."""
        if op in ("linear", "prelu", "batch_norm"):
            kind = aten.MODULES[op][0]
            message = f"{op} of tensors that no nn.{kind} holds"
            raise refusal("FG706", message, self.trace.place(node), f"use an nn.{kind}, so that the state_dict stays")
        names = _FUNCTIONAL[op]
        given: list[Any] = [node.args[at] if at is not None and at < len(node.args) else None for at in names]
        weight, bias, eps = given
        if op != "rms_norm":
            eps = 1e-5 if eps is None else eps
        value = None if eps is None else Number(eps, arguments.of_number(self.trace, node, names[2], "eps", eps))
        keys: dict[str, Any] = {"eps": value, "affine": False, **_several(node, op, x)}
        if op == "group_norm":
            groups: Any = node.args[1]
            keys["num_groups"] = Number(groups, arguments.of_number(self.trace, node, 1, "num_groups", groups))
        tensors = [each for each in (weight, bias) if isinstance(each, fx.Node)]
        if tensors and x.layout[-1:] != (CHANNELS,):
            kind = aten.MODULES[op][0]
            message = f"{op} over positions with tensors that no nn.{kind} holds"
            raise refusal("FG706", message, self.trace.place(node), f"use an nn.{kind}, so that the state_dict stays")
        return keys, tensors

    def _check_channels(self, node: fx.Node, op: str, x: Value, first: Layout, is_image: bool) -> None:
        """A norm has to be one over what the chain's is, and a layer over the channels."""
        where = self.trace.place(node)
        given: Any = node.args[1] if op in ("layer_norm", "rms_norm") else ()
        if op == "instance_norm" and not is_image:
            self._check_of_row(node, x)
            return
        count = len(given) or 1
        if op in ("batch_norm", "group_norm", "instance_norm", "prelu"):
            fits = x.layout[:2] == ("0", CHANNELS) and (is_image or not any(x.layout[2:]))
            one = op == "prelu" and not is_image and node.args[1].meta["val"].numel() == 1  # type: ignore[union-attr]
            fits = fits or one
        else:
            over_positions = is_image and op != "linear" and x.layout[:2] == ("0", CHANNELS) and count < len(x.layout)
            fits = x.layout[-1:] == (CHANNELS,) or over_positions
        if not fits:
            if not is_image:
                hint = _FLATTENED if ROWS in x.layout else _LAST if first[-1] == CHANNELS else _SECOND
                raise refusal("FG707", f"{op} over other dimensions than the channels", where, hint)
            hint = "the channels are dimension 1: permute these to the end in front of it, and back behind"
            raise refusal("FG707", f"{op} over positions", where, hint)
        if is_image and not all(isinstance(size, int) for size in given):
            hint = "an instance or group norm is over any number of positions"
            raise refusal("FG707", f"{op} over sizes that change", where, hint)
        is_several = count > 1 and x.layout[-1:] == (CHANNELS,)
        if is_several and (is_image or x.layout[-count:] != first[-count:] or count >= len(first)):
            hint = "it may be over the last dimensions of the first input, but for one or more of rows"
            raise refusal("FG707", f"{op} over the last {count} dimensions", where, hint)

    def _check_of_row(self, node: fx.Node, x: Value) -> None:
        """An instance norm has to be one of a row as a picture of one line, with nothing to learn or to count."""
        where = self.trace.place(node)
        if CHANNELS in x.layout[:2] or [each for each in x.layout[2:] if each is not None] != [CHANNELS]:
            hint = "a chain has it over the channels of a row: of [rows, 1, channels]"
            raise refusal("FG707", "instance_norm over other dimensions than the channels", where, hint)
        if any(each is not None for each in node.args[1:5]) or not node.args[5]:
            hint = "leave out affine and track_running_stats"
            raise refusal("FG703", "instance_norm with tensors of its own", where, hint)

    def part(self, path: str) -> nn.Module | None:
        try:
            return self.trace.module.get_submodule(path)
        except AttributeError:
            return None


def _several(node: fx.Node, op: str, x: Value) -> dict[str, Any]:
    """What a norm over several dimensions, or over positions, says of these."""
    given: Any = node.args[1] if op in ("layer_norm", "rms_norm") else ()
    if len(given) < 2 and x.layout[-1:] == (CHANNELS,):
        return {}
    over = x.layout[len(x.layout) - len(given) :]
    return {"normalized_shape": over, **({} if over[-1] == CHANNELS else {SIZES: tuple(given)})} if given else {}


def _momentum(part: Any, path: str, arguments: Arguments) -> dict[str, Number | None]:
    momentum = part.momentum
    return {"momentum": None if momentum is None else Number(momentum, arguments.of_attribute(path, "momentum"))}
