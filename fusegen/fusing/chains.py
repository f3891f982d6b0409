"""The chain that a module is: its import, its plan and what it saves. Modules that are alike are imported once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.errors import Diagnostic, SpecError
from fusegen.fusing.calls import Calls
from fusegen.fusing.flat import flat
from fusegen.fusing.imports import imported
from fusegen.fusing.saving import Saving, eager, saving
from fusegen.fusing.snapshot import attributes, plain
from fusegen.fusing.widths import with_widths
from fusegen.importing.positions import Positions
from fusegen.plan.composition import Planned, dimensions_of

# The most in each leading dimension, by their number.
_ROWS = {1: (24,), 2: (4, 6), 3: (2, 3, 4)}


@dataclass(frozen=True)
class Chain:
    """text: of its spec. sizes: of the arguments that are sizes. paths: of the module's submodules by the names that
    the spec has for them. of_images: whether its channels are dimension 1."""

    text: str
    plan: Planned
    sizes: dict[str, int]
    paths: dict[str, str]
    saving: Saving
    of_images: bool = False


class Refused(Exception):
    """Why modules are no chain to replace. is_known: by looking at them alone. has_parts: something inside may be."""

    def __init__(
        self, reason: str, diagnostic: Diagnostic | None = None, *, is_known: bool = False, has_parts: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason, self.diagnostic, self.is_known, self.has_parts = reason, diagnostic, is_known, has_parts

    def with_advice(self, ops: Collection[str]) -> Refused:
        """The same of a module whose forward runs these ops of a chain itself."""
        if not self.has_parts or len(ops) < 2:
            return self
        advice = f"its forward itself has {', '.join(ops)}: in a module of their own they would be looked at"
        return Refused(f"{self.reason}; {advice}", self.diagnostic, has_parts=True)


class Chains:
    """targets: of the specs, in place of the importer's. store: of imports that have passed. keep: whether to add to
    them."""

    def __init__(self, targets: list[str] | None, store: Path, *, keep: bool) -> None:
        self.targets, self.store, self.keep = targets, store, keep
        self._known: dict[Any, Chain | Refused] = {}

    def of(self, module: nn.Module, inputs: Sequence[Tensor], origin: str | None) -> Chain:
        """The chain of a module that is called with such inputs. origin: where it comes from, if not from its class.

        Raises Refused.
        """
        key = (_form(module), tuple((x.shape, x.dtype) for x in inputs))
        if key not in self._known:
            try:
                self._known[key] = self._imported(module, inputs, origin)
            except Refused as refused:
                self._known[key] = refused
        found = self._known[key]
        if isinstance(found, Refused):
            raise found
        return found

    def _imported(self, module: nn.Module, inputs: Sequence[Tensor], origin: str | None) -> Chain:
        # Strides are no business of a chain, but of a trace.
        given = [x.cpu().clone(memory_format=torch.contiguous_format) for x in inputs]
        try:
            copied, paths = flat(module)
            positions = Positions.of(copied, given)
            few = given if positions else _few_rows(given)
            text = imported(copied, few, self.store, keep=self.keep)
            counted = eager(copied, given)
            rows = None if positions else math.prod(given[0].shape[:-1])
            text, plan = with_widths(text, rows, self.targets, origin)
        except SpecError as error:
            first = error.diagnostics[0]
            if origin is not None:  # the line is none of the user's
                first = dataclasses.replace(first, location=None, source=None)
            raise Refused(first.message, first, has_parts=True) from None
        except Exception as error:  # whatever a module of somebody else may do to a tracer
            raise Refused(f"its import fails: {type(error).__name__}: {error}"[:300]) from None
        saved = saving(counted, plan, given[0].dtype)
        if saved is None:
            raise Refused(f"there are no kernels for {str(given[0].dtype).removeprefix('torch.')}")
        if saved.bytes <= 0:
            ops = ", ".join(step.op for step in plan.spec.chain)
            raise Refused(f"kernels would move as much as PyTorch's operators: {ops}", is_known=True)
        sizes = {name: plan.spec.dims[name] for name, each in plan.spec.arguments.items() if each.type == "dim"}
        return Chain(text, plan, sizes, paths, saved, positions is not None)


def _few_rows(inputs: Sequence[Tensor]) -> list[Tensor]:
    """The inputs with as many rows as an import needs, which runs them many times: those of a chain are any number."""
    leading = inputs[0].shape[:-1]
    if any(x.shape[:-1] != leading for x in inputs):
        return list(inputs)
    most = _ROWS.get(len(leading), (2,) * len(leading))
    return [x[tuple(map(slice, most))].contiguous() for x in inputs]


def misfit(chain: Chain, calls: Calls) -> str | None:
    """Why the kernels do not take all calls that were seen."""
    allowed = dimensions_of(chain.plan)
    at = 1 if chain.of_images else -1
    width = calls.inputs[0].shape[at]
    for form in calls.forms:
        shapes = [shape for shape, _ in form]
        ranks = {len(shape) for shape in shapes}
        if len(shapes) != len(calls.inputs) or shapes[0][at] != width or len(ranks) > 1:
            return "its calls have inputs of several forms"
        if chain.of_images:
            if len(shapes[0]) != calls.inputs[0].dim():
                return "its calls have inputs of several forms"
            continue
        if min(ranks) < allowed.least or (allowed.most is not None and max(ranks) > allowed.most):
            return f"an input has {max(ranks)} dimensions, and {allowed.reason}"
        if any(shape[:-1] != shapes[0][:-1] for shape in shapes):
            return "its inputs differ in their rows"
    return None


def _form(module: nn.Module) -> Any:
    """Equal for modules that compute the same of their tensors, whatever the values of these."""
    # What is no number or text is the same if it is the same object.
    values = tuple((name, repr(value) if plain(value) else id(value)) for name, value in attributes(module).items())
    tensors = [*module._parameters.items(), *module._buffers.items()]
    shapes = tuple((name, None if each is None else (each.shape, each.dtype)) for name, each in tensors)
    parts = tuple((name, None if part is None else _form(part)) for name, part in module._modules.items())
    return type(module), values, shapes, parts
