"""The chain that a module is: its import, its plan and what it saves. Modules that are alike are imported once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.errors import Diagnostic, SpecError
from fusegen.fusing.calls import Calls
from fusegen.fusing.flat import flat
from fusegen.fusing.saving import Saving, saving
from fusegen.fusing.snapshot import plain
from fusegen.fusing.widths import with_widths
from fusegen.importing.module import from_module
from fusegen.plan.dimensions import dimensions
from fusegen.plan.plan import Plan


@dataclass(frozen=True)
class Chain:
    """text: of its spec. sizes: of the arguments that are sizes. paths: of the module's submodules by the names that
    the spec has for them."""

    text: str
    plan: Plan
    sizes: dict[str, int]
    paths: dict[str, str]
    saving: Saving


class Refused(Exception):
    """Why modules are no chain to replace. is_known: by looking at them alone."""

    def __init__(self, reason: str, diagnostic: Diagnostic | None = None, *, is_known: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.diagnostic, self.is_known = reason, diagnostic, is_known


class Chains:
    """targets: of the specs, in place of the importer's."""

    def __init__(self, targets: list[str] | None) -> None:
        self.targets = targets
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
        copied, paths = flat(module)
        # Strides are no business of a chain, but of a trace.
        given = [x.cpu().clone(memory_format=torch.contiguous_format) for x in inputs]
        try:
            text, plan = with_widths(from_module(copied, given, name="chain"), self.targets, origin)
        except SpecError as error:
            first = error.diagnostics[0]
            raise Refused(first.message, first) from None
        except Exception as error:  # whatever a module of somebody else may do to a tracer
            raise Refused(f"its import fails: {type(error).__name__}: {error}"[:300]) from None
        sizes = {name: plan.spec.dims[name] for name, each in plan.spec.arguments.items() if each.type == "dim"}
        saved = saving(copied, given, plan)
        if saved is None:
            raise Refused(f"there are no kernels for {str(given[0].dtype).removeprefix('torch.')}")
        if saved.bytes <= 0:
            ops = ", ".join(step.op for step in plan.spec.chain)
            raise Refused(f"kernels would move as much as PyTorch's operators: {ops}", is_known=True)
        return Chain(text, plan, sizes, paths, saved)


def misfit(chain: Chain, calls: Calls) -> str | None:
    """Why the kernels do not take all calls that were seen."""
    allowed, width = dimensions(chain.plan), calls.inputs[0].shape[-1]
    for form in calls.forms:
        shapes = [shape for shape, _ in form]
        ranks = {len(shape) for shape in shapes}
        if len(shapes) != len(calls.inputs) or shapes[0][-1] != width or len(ranks) > 1:
            return "its calls have inputs of several forms"
        if min(ranks) < allowed.least or (allowed.most is not None and max(ranks) > allowed.most):
            return f"an input has {max(ranks)} dimensions, and {allowed.reason}"
        if any(shape[:-1] != shapes[0][:-1] for shape in shapes):
            return "its inputs differ in their rows"
    return None


def _form(module: nn.Module) -> Any:
    """Equal for modules that compute the same of their tensors, whatever the values of these."""
    own = {name: value for name, value in vars(module).items() if not name.startswith("_") and name != "training"}
    # What is no number or text is the same if it is the same object.
    values = tuple((name, repr(value) if plain(value) else id(value)) for name, value in own.items())
    tensors = [*module._parameters.items(), *module._buffers.items()]
    shapes = tuple((name, None if each is None else (each.shape, each.dtype)) for name, each in tensors)
    parts = tuple((name, None if part is None else _form(part)) for name, part in module._modules.items())
    return type(module), values, shapes, parts
