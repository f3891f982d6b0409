"""What runs in the place of a region: the ops of its package, with the tensors of the graph as their arguments."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, fx, nn

from fusegen.aten.nodes import value_of
from fusegen.capture.chain import Chain, NotAChain
from fusegen.capture.partition import Region

_MODE, _SEED, _PRECISION, _SAMPLES = "_dtype_mode", "seed", "_precision", "_samples"


@dataclass(frozen=True)
class Argument:
    """An argument of an op. tensor: the index of a tensor among the arguments of the call; without it, `value` is
    passed in every call. shape: what the op takes the tensor as; None: as it is. batch_of: the index of a tensor whose
    first size is passed."""

    tensor: int | None = None
    value: Any = None
    shape: tuple[int, ...] | None = None
    batch_of: int | None = None


class Call(nn.Module):
    """A call of a package's ops. It runs while a graph is traced, and leaves the ops in the graph.

    Takes the tensors of the region, and returns its results: a tensor, or a tuple of several.
    """

    fusegen_keep_pieces = False  # a weight that is split is split in each call
    fusegen_chunk = None

    def __init__(
        self,
        operator: Any,
        arguments: Sequence[Argument],
        results: Sequence[tuple[int, torch.dtype]],
        is_image: bool,
        name: str,
        loss: Any = None,
        inputs: Mapping[int, int] | None = None,
    ) -> None:
        """results: of what is returned the place among the operator's results, and the dtype. name: of the package.
        loss: of a chain that ends with one of all rows. inputs: of each input of the spec the place among the tensors.
        """
        super().__init__()
        self._loss, self._inputs = loss, dict(inputs or {})
        self._operator = operator
        self._arguments, self._results, self._is_image, self._chain = list(arguments), list(results), is_image, name

    def extra_repr(self) -> str:
        return self._chain

    @property
    def op(self) -> str:
        """The name of the forward op, which has the digest of its sources."""
        return str(self._operator.forward)

    @property
    def results(self) -> int:
        """How many tensors it returns."""
        return len(self._results)

    def __getstate__(self) -> dict[str, Any]:
        """For the keys of PyTorch's caches of compiled graphs."""
        return self.__dict__ | {"_operator": self.op}

    def __deepcopy__(self, _: dict[int, Any]) -> Call:
        """Copies of a graph have the same ops."""
        return self

    def forward(self, *tensors: Tensor) -> Any:
        given = [self._given(each, tensors) for each in self._arguments]
        if self._is_image:
            images, formats = self._support("images"), self._support("memory_formats")
            result = images.call_on_images(self._operator, given, formats.is_last(given[0]))
        elif self._loss is not None:
            result = self._of_rows(given, {index: tensors[place] for index, place in self._inputs.items()})
        else:
            result = self._support("precisions").call_operator(self, self._operator, tuple(given))
        results = result if isinstance(result, tuple) else (result,)
        made = [results[at].to(dtype) for at, dtype in self._results]
        return made[0] if len(made) == 1 else tuple(made)

    def _of_rows(self, given: Sequence[Any], inputs: Mapping[int, Tensor]) -> Tensor:
        """The mean or the sum of losses, some rows at a time where there are many."""
        if self._loss.is_divided(self, given):
            return self._loss.in_chunks(self, self._operator, given, inputs)
        losses = self._support("precisions").call_operator(self, self._operator, tuple(given))
        return self._loss(self._operator.package, losses, inputs)

    def _support(self, module: str) -> Any:
        return _support_of(self._operator, module)

    def _given(self, argument: Argument, tensors: Sequence[Tensor]) -> Any:
        if argument.value is _SEED:
            return self._support("drawn_seed").draw_seed(tensors[0].device)
        if argument.batch_of is not None:
            return tensors[argument.batch_of].shape[0]
        if argument.tensor is None:
            return argument.value
        tensor = tensors[argument.tensor]
        return tensor if argument.shape is None else tensor.reshape(argument.shape)


def call_of(region: Region, chain: Chain, module: ModuleType, name: str) -> tuple[Call, list[fx.Node]]:
    """The call for a region, and the nodes whose tensors it takes. module: of the package.

    Raises NotAChain where the package has no kernels for the dtypes, or is not compiled.
    """
    package = module._package
    if not hasattr(package, "dtypes"):
        raise NotAChain("the chain is planned as several regions")
    device = value_of(region.nodes[0]).device.type  # type: ignore[union-attr]
    if device != package.device:
        raise NotAChain(f"the tensors are on {device}, where there are no kernels")
    if not package.built:
        raise NotAChain(f"the package is not compiled: {package.command()}")
    operator = _operator(module, chain.training)
    mode = _mode(operator, chain)
    nodes = list(dict.fromkeys(node for node in chain.tensors.values() if node is not None))
    numbers = {**chain.numbers, _MODE: mode, _SEED: _SEED}
    if operator.split is not None:
        numbers.setdefault(_PRECISION, _support_of(operator, "precisions").FP32_SPLIT)
    places = {name: nodes.index(node) for name, node in chain.tensors.items() if node is not None}
    sizes = {f"_{name}_rows": places[name] for name in chain.samples}
    shapes = _shapes(chain)
    arguments = list[Argument]()
    for each in operator.forward._schema.arguments:
        if each.name in places:
            arguments.append(Argument(places[each.name], shape=shapes.get(each.name)))
        elif each.name in sizes or each.name == _SAMPLES:
            arguments.append(Argument(batch_of=sizes.get(each.name, arguments[0].tensor)))
        elif each.name in numbers:
            arguments.append(Argument(value=numbers[each.name]))
        elif each.name in chain.tensors or "Optional" in str(each.type):
            arguments.append(Argument())
        else:
            raise NotAChain(f"its op takes {each.name}, which the graph does not have")
    results = [(at, node.meta["val"].dtype) for node, at in chain.results]
    loss = getattr(module, module.__all__[0])._fusegen_loss
    is_image = region.frame.form == "images"
    inputs = {index: places[name] for index, name in enumerate(chain.data["inputs"]) if name in places}
    return Call(operator, arguments, results, is_image, name, loss, inputs), nodes


def _shapes(chain: Chain) -> dict[str, tuple[int, ...]]:
    """The shapes that the op has for tensors of channels alone, of samples, and of one number, and for their gradients:
    [channels], with a size of one for each dimension of positions where that meets images, [batch, channels], and [].
    The graph may have other ones, such as [1, channels, 1, 1], [batch, 1, channels] and [1]."""
    steps = {step["parameter"]: step["shape"] for step in chain.data["chain"] if "shape" in step}
    found: dict[str, tuple[int, ...]] = {name: (-1, *(1 for _ in steps.get(name, ())[1:])) for name in chain.channels}
    found |= {name: (-1, chain.data["dims"]["channels"]) for name in chain.samples}
    return found | {name: () for name, shape in chain.data["inputs"].items() if not shape}


def _operator(module: ModuleType, training: bool) -> Any:
    for name in ("_fused", "_train" if training else "_eval"):
        if hasattr(module, name):
            return getattr(module, name)
    raise NotAChain("the package has no kernels of this mode")


def _results(operator: Any, chain: Chain) -> list[tuple[str, torch.dtype]]:
    """The roles of the results, which stand for their dtypes, and the dtypes that the graph has."""
    order = operator.order or (0,)
    return [(operator.results[order[at]][0], node.meta["val"].dtype) for node, at in chain.results]


def _mode(operator: Any, chain: Chain) -> int:
    """The dtype mode whose kernels take the tensors as they are, and make results of the least width that is wide
    enough for all of them."""
    given, results = _roles(operator, chain), _results(operator, chain)
    fits = [
        (sum(row[role].itemsize for role, _ in results), mode)
        for mode, row in enumerate(operator.package.dtypes)
        if all(row[role] == dtype for role, dtype in given)
        and all(torch.promote_types(dtype, row[role]) == row[role] for role, dtype in results)
    ]
    if not fits:
        raise NotAChain(f"there are no kernels for {_text(given)} that make {_text(results)}")
    return min(fits)[1]


def _text(dtypes: Iterable[tuple[str, torch.dtype]]) -> str:
    return ", ".join(f"{role} in {dtype}" for role, dtype in dict.fromkeys(dtypes))


def _roles(operator: Any, chain: Chain) -> list[tuple[str, torch.dtype]]:
    """The roles of the tensors, which stand for their dtypes, but for those of whole numbers."""
    names = [each.name for each in operator.forward._schema.arguments]
    roles = dict(zip(names, (role for role, *_ in operator.gradients), strict=False))
    values = {name: value_of(node) for name, node in chain.tensors.items()}
    floating = {name: value for name, value in values.items() if value is not None and value.is_floating_point()}
    return [(roles.get(name, "parameter"), value.dtype) for name, value in floating.items()]


def _support_of(operator: Any, module: str) -> Any:
    """A module of the support package that the operator is from, which packages import when they need it."""
    return importlib.import_module(f"{type(operator).__module__.rpartition('.')[0]}.{module}")
