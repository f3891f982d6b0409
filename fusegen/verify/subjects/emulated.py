"""Runs the tail of a chain - everything behind its contraction - through the emulated kernels, and in double
precision."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.emulate import Buffer, EmulatedLibrary
from fusegen.ir.axes import SCALAR
from fusegen.ops.step import WIDTH
from fusegen.plan.launches.shapes import AUTOMATIC, Shapes
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Mode, Program, Variant
from fusegen.plan.programs.model import Tensor as PlanTensor
from fusegen.render.programs.launchers_header import SAMPLE_ROWS
from fusegen.runtime.launchers import Call, Launcher
from fusegen.verify.references.products import Given
from fusegen.verify.runs.dropout_replay import replay

SEED = 0x123456789ABCDEF  # of dropouts


def constant(plan: Plan, module: nn.Module, mode: Mode, name: str) -> float:
    """A constant of the module as it passes it: for None a cumulative average, or the eps that F.rms_norm takes."""
    attribute = plan.chain.constants[name].attribute
    value = attrgetter(attribute)(module)
    if value is not None:
        return float(value)
    activation = getattr(torch, mode.roles["activation"])
    eps = torch.finfo(torch.promote_types(activation, torch.float32)).eps
    return eps if attribute.endswith(".eps") else -1.0


def dtype_of(mode: Mode, tensor: PlanTensor) -> torch.dtype:
    """The dtype of a tensor that kernels read or write in a mode."""
    if tensor.role == "mask":
        return torch.bool
    if tensor.role == "tap":
        return torch.uint8
    if tensor.role in ("count", "index", "seed"):
        return torch.int64
    if tensor.role == "accumulator":
        return torch.float64 if mode.roles["activation"] == "float64" else torch.float32
    return getattr(torch, mode.roles[tensor.role])


@dataclass
class TailRun:
    """Results of one forward and backward pass, and the buffers that were updated, by the plan's names."""

    values: dict[str, Tensor] = field(default_factory=dict)


class EmulatedTail:
    """The tail of one variant of a chain, run by the emulator.

    module: an instance of the generated class, whose parameters, buffers and constants are used. samples: how many rows
    inputs have that may have fewer than others; None: as many as those.
    """

    def __init__(
        self, plan: Plan, variant: Variant, library: EmulatedLibrary, module: nn.Module, samples: int | None = None
    ) -> None:
        self.plan, self.variant, self.library, self.module = plan, variant, library, module
        self.samples = samples

    def run(
        self,
        tensors: Mapping[str, Tensor],
        mode: Mode,
        *,
        schedule: str = "automatic",
        shapes: Shapes | None = None,
        seed: int = 0,
        misalign: str = "",
        in_place: bool = False,
    ) -> TailRun:
        """tensors: the chain's source ([rows, channels of all its parts]), its further inputs and the result's
        gradient. Outputs are poisoned before.

        schedule: "persistent" or "two_pass" forces it, with default tunables. shapes: forces all of them. With neither
        the launchers choose. misalign: "elements" or "vectors", which tensors begin an element behind a multiple of
        16 bytes: those that have rows and channels, or the others but for scalars. in_place: whether the gradient of
        the contraction's result is written over that result.
        """
        if shapes is None and schedule != AUTOMATIC:
            shapes = Shapes(schedule.replace(" ", "_"))
        self.mode, self.rows = mode, tensors[self.variant.chain.source.name].shape[0]
        width = tensors[self.variant.chain.source.name].shape[1]
        self.channels = width // self.variant.chain.number_of_parts
        self.groups = self._groups()
        self.misalign, self.overwritten = misalign, self.variant.chain.source.name if in_place else ""
        known = {name: tensor.detach() for name, tensor in tensors.items()}
        run = TailRun()
        for program in (self.variant.forward, self.variant.backward):
            known.update(self._program(program, known, shapes, seed))
        for tensor in (t for p in (self.variant.forward, self.variant.backward) for t in p.made):
            value = known[tensor.name]
            is_shared = self._is_repeated(tensor.gradient_of)
            value = value.view(self.groups, -1).sum(0) if is_shared else value
            run.values[tensor.name] = self._of_trailing(tensor.gradient_of, value)
        return run

    def _program(
        self, program: Program, known: Mapping[str, Tensor], shapes: Shapes | None, seed: int
    ) -> dict[str, Tensor]:
        launcher = Launcher(self.plan, program)
        groups = 1 if program.groups is None else self.groups
        call = self._call(groups, shapes)
        bytes_ = self.library.call_int64(f"{launcher.symbol}_workspace", call.struct)
        inputs = {
            tensor.name: None
            if in_product(self.plan, self.mode, tensor.name)
            else self._buffer(tensor, known, tensor.name == self.overwritten)
            for tensor in program.given
        }
        outputs: dict[str, Buffer] = {}
        for tensor in program.made:
            updated = tensor.name in self.variant.chain.buffers
            outputs[tensor.name] = self._buffer(tensor, known, updated) if updated else self._poisoned(tensor)
            if self.overwritten and tensor.gradient_of == self.overwritten and (product := inputs[self.overwritten]):
                outputs[tensor.name] = product
        # The workspace in floats, so that what is not written reads as NaN; none where the op would allocate none.
        workspace = Buffer.poisoned((bytes_ // 4,), torch.float32) if bytes_ else None
        constants = {name: constant(self.plan, self.module, self.mode, name) for name in program.constants}
        constants[SAMPLE_ROWS] = 1
        arguments = launcher.arguments({**inputs, **outputs}, constants, call.samples)
        self.library.call(launcher.symbol, replace(call, workspace=workspace).struct, arguments, seed=seed)
        return {key: buffer.tensor() for key, buffer in outputs.items()}

    def _call(self, groups: int, shapes: Shapes | None) -> Call:
        samples = self.samples or self.rows
        return Call(self.mode.index, self.rows, self.channels, groups, shapes, samples=samples)

    def _buffer(self, tensor: PlanTensor, known: Mapping[str, Tensor], updated: bool = False) -> Buffer:
        value = known[tensor.name] if tensor.name in known else self._owned(tensor)
        dtype = dtype_of(self.mode, tensor)
        value = value.detach().to(dtype).reshape(self._shape(tensor)).contiguous()
        offset = value.element_size() if self._misaligned(tensor) else 0
        return Buffer.from_tensor(value, offset_bytes=offset, readonly=not updated)

    def _poisoned(self, tensor: PlanTensor) -> Buffer:
        dtype = dtype_of(self.mode, tensor)
        offset = torch.empty((), dtype=dtype).element_size() if self._misaligned(tensor) else 0
        return Buffer.poisoned(self._shape(tensor), dtype, offset_bytes=offset)

    def _misaligned(self, tensor: PlanTensor) -> bool:
        if tensor.axes == SCALAR:
            return False
        return self.misalign == ("elements" if tensor.is_full else "vectors")

    def _owned(self, tensor: PlanTensor) -> Tensor:
        chain, name = self.variant.chain, tensor.name
        if tensor.role == "seed":
            return torch.tensor(SEED)
        table = chain.parameters if name in chain.parameters else chain.buffers
        value = attrgetter(table[name].attribute)(self.module)
        if self._of_all_channels(name):
            value = value.reshape(value.shape[-len(self._trailing) :]).expand(self._trailing).flatten()
        return value.repeat(self.groups) if self._is_repeated(name) else value

    def _of_all_channels(self, name: str) -> bool:
        """Whether the kernels take a parameter of the trailing dimensions with a value for each channel."""
        parameter = self.variant.chain.parameters.get(name)
        return parameter is not None and parameter.trailing

    @property
    def _trailing(self) -> tuple[int, ...]:
        return trailing_of(self.plan, self.module)

    def _of_trailing(self, name: str, value: Tensor) -> Tensor:
        """The gradient of a parameter as it is, from that for each channel."""
        if not self._of_all_channels(name):
            return value
        own = attrgetter(self.variant.chain.parameters[name].attribute)(self.module).shape
        return value.view(self._trailing).sum_to_size(own[-len(self._trailing) :]).view(own)

    def _is_repeated(self, name: str) -> bool:
        """Whether the kernels take a parameter for all blocks of channels, and return its gradient for each."""
        parameter = self.variant.chain.parameters.get(name)
        return parameter is not None and parameter.repeated

    def _shape(self, tensor: PlanTensor) -> tuple[int, ...]:
        rows, channels = self.rows if "N" in tensor.axes else 1, self.channels if "C" in tensor.axes else 1
        if tensor.compact or tensor.unit.of_samples:
            return self.samples or self.rows, channels
        if tensor.axes.blocks("C") is not None:
            return rows, self.groups
        return rows, tensor.parts * channels if "C" in tensor.axes else channels

    def _groups(self) -> int:
        norms = [attrgetter(step.name)(self.module) for step in self.plan.spec.chain if step.op == "group_norm"]
        found = [norm.num_groups for norm in norms]
        widths = [step.name for step in self.plan.spec.chain if getattr(step, "width", None) is not None]
        found += [self.channels // attrgetter(name)(self.module).normalized_shape[0] for name in widths]
        return max(found, default=1)


def trailing_of(plan: Plan, module: nn.Module) -> tuple[int, ...]:
    """The sizes of the trailing dimensions that are the channels of a module together; none where one is."""
    if not plan.chain.trailing:
        return ()
    name = next(step.name for step in plan.spec.chain if getattr(step, "normalized_shape", None) is not None)
    return tuple(attrgetter(name)(module).normalized_shape)


def in_product(plan: Plan, mode: Mode, name: str) -> bool:
    """Whether `name` is a bias that the library has added to the product in this mode."""
    parameter = plan.chain.parameters.get(name)
    return parameter is not None and parameter.in_product and WIDTH[mode.roles["activation"]] == 2


class _Given(nn.Module):
    """Stands in for an anchor whose result is handed in: only adds the bias, if that is still to be done.

    spatial: how many dimensions of positions the chain has. Each row is an element of the batch with one position.
    """

    def __init__(self, bias: Tensor | None, product: Tensor, spatial: int) -> None:
        super().__init__()
        self.bias, self.product, self.ones = bias, product, (1,) * spatial

    def forward(self, _: Tensor) -> Tensor:
        product = self.product.view(*self.product.shape, *self.ones)
        return product if self.bias is None else product + self.bias.view(-1, *self.ones)


def tail_reference(
    plan: Plan, module: nn.Module, tensors: Mapping[str, Tensor], mode: Mode, training: bool
) -> dict[str, Tensor]:
    """Results, gradients and moved buffers of the tail by autograd in float64, by the names that a TailRun has.
    Parameters are rounded to their dtype in `mode` first."""
    variant = plan.variants[0 if training else -1]
    chain = variant.chain
    exact = copy.deepcopy(module)
    rounded = getattr(torch, mode.roles["parameter"])
    for own in (*exact.parameters(), *exact.buffers()):
        if own.is_floating_point():
            own.data = own.data.to(rounded).double()
    exact.train(training)
    replay(exact, chain, type(exact), torch.tensor(SEED))
    owned = dict(exact.named_parameters())
    given = {name: value for name, value in tensors.items() if name != variant.result_gradient}
    leaves = {name: _leaf(value) for name, value in given.items()}
    anchor, ones = chain.contraction or chain.convolution, (1,) * chain.spatial
    given_result: contextlib.AbstractContextManager = contextlib.nullcontext()
    if anchor and chain.contraction and "." not in chain.contraction.attribute:
        added = any(in_product(plan, mode, name) for name in chain.parameters)
        weight = exact.get_parameter(chain.contraction.attribute)
        given_result = Given(weight, leaves[chain.source.name], add_bias=not added)
    elif chain.batched:
        given_result = Given(None, leaves[chain.source.name], add_bias=False)
    elif anchor:
        bias = getattr(exact, anchor.name).bias
        added = any(in_product(plan, mode, name) for name in chain.parameters)
        setattr(exact, anchor.name, _Given(None if added else bias, leaves[chain.source.name], chain.spatial))
    inputs = [leaves.get(tensor.name, torch.empty(0, 0)) for tensor in chain.inputs]
    trailing = trailing_of(plan, module)
    if trailing:
        inputs = [_with_trailing(x, trailing) for x in inputs]
    with given_result:
        eager: Any = exact.fusegen_reference
        result = eager(*(x.view(*x.shape, *ones) if ones else x for x in inputs))
    result = result.reshape(len(result), -1)
    result.backward(tensors[variant.result_gradient].double().view_as(result))
    values = {variant.result: result.detach()}
    for name, tensor in variant.gradients.items():
        if name in leaves:
            values[tensor.name] = _gradient(leaves[name])
        elif in_product(plan, mode, name):
            values[tensor.name] = _gradient(leaves[chain.source.name]).sum(0)
        else:
            values[tensor.name] = _gradient(owned[chain.parameters[name].attribute])
    for name, buffer in chain.buffers.items():
        values[name] = attrgetter(buffer.attribute)(exact).detach()
    return values


def _with_trailing(x: Tensor, trailing: Sequence[int]) -> Tensor:
    """A tensor as kernels take it, with the dimensions that are the channels."""
    own = trailing if x.shape[-1] == math.prod(trailing) else [1] * len(trailing)
    return x.view(*x.shape[:-1], *own)


def _leaf(value: Tensor) -> Tensor:
    """In double precision, but for a mask."""
    return value.detach().double().requires_grad_() if value.is_floating_point() else value


def _gradient(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
