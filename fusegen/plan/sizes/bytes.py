"""How many bytes tensors, kernels and programs move at sizes of the spec's symbols."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fusegen.chain.shape import ROWS
from fusegen.errors import InternalError
from fusegen.ir.axes import Axes, Dim
from fusegen.ir.multiples import value_of
from fusegen.ops.step import WIDTH
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.gradient_aliases import is_launched, is_written
from fusegen.plan.programs.model import Kernel, Mode, Program, Role, Tensor
from fusegen.plan.programs.modes import VERIFICATION_DTYPE
from fusegen.plan.programs.units import unit_of
from fusegen.spec.model import SpecModel

FIXED_WIDTH = {"accumulator": 4, "count": 8, "index": 8, "seed": 8, "mask": 1, "tap": 1}
"""The bytes of an element where the mode has no say: statistics in float32, counts in int64, masks of bool."""


def typical_symbols(spec: SpecModel) -> dict[str, int]:
    """The values of the spec's `dims`, and those that are `typical` of integer arguments."""
    return {**spec.dims, **{name: each.typical for name, each in spec.arguments.items() if each.type == "int"}}


def is_built(mode: Mode) -> bool:
    """Whether every build has the mode, not only one for verification."""
    return mode.roles["activation"] != VERIFICATION_DTYPE


def is_read(mode: Mode, tensor: Tensor) -> bool:
    """Whether the kernels read an input in this mode: a bias that the library has added is no business of theirs."""
    return not (tensor.in_product and WIDTH[mode.roles["activation"]] == 2)


def shape(plan: Plan, axes: Axes, sizes: Mapping[str, int]) -> tuple[int, int]:
    """How many values over these axes there are along the rows, and along the channels."""

    def number(dim: Dim) -> int:
        if dim == ROWS and plan.chain.leading:
            return math.prod(map(number, plan.chain.leading))
        if dim == ROWS:
            return positions_of(plan, sizes)
        return value_of(dim, sizes)

    if unit_of(axes).of_samples:
        return number(plan.chain.inputs[0].shape[0]), number(plan.chain.channels)
    return number(axes.count("N", plan.chain.rows)), number(axes.count("C", plan.chain.channels))


def shape_of_input(plan: Plan, name: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """That of a tensor which the module is given."""
    given = next(each.shape for each in plan.chain.inputs if each.name == name)
    return tuple(value_of(dim, sizes) for dim in given)


def samples_of(plan: Plan, program: Program, sizes: Mapping[str, int]) -> int:
    """How many samples a program takes sums of, or has values of; 0 where it does neither."""
    if program.of_samples or any(tensor.unit.of_samples and not tensor.samples for tensor in program.outputs):
        return value_of(plan.chain.inputs[0].shape[0], sizes)
    if not program.samples:
        return 0
    return math.prod(shape_of_input(plan, program.samples[0], sizes)) // value_of(plan.chain.channels, sizes)


def positions_of(plan: Plan, sizes: Mapping[str, int]) -> int:
    """The rows of images or of a bmm: each position or row of the result, for each element of the batch."""
    if plan.chain.batched:
        return math.prod(dim if isinstance(dim, int) else sizes[dim] for dim in plan.chain.inputs[0].shape[:2])
    if not plan.chain.spatial:
        raise InternalError(f"{plan.spec.name} has no positions")
    batch, made = _images(plan, sizes)
    return batch * math.prod(made)


def windows_of(plan: Plan, sizes: Mapping[str, int]) -> int:
    """How many windows of positions there are in all images."""
    batch, made = _images(plan, sizes)
    return batch * math.prod(plan.chain.result.stored(made, lambda each: value_of(each, sizes)))


def _images(plan: Plan, sizes: Mapping[str, int]) -> tuple[int, Sequence[int]]:
    """The batch, and the positions of each image behind the anchor."""
    batch, _, *given = (value_of(dim, sizes) for dim in plan.chain.inputs[0].shape)
    anchor = plan.chain.anchor
    return batch, anchor.positions(given, lambda size: value_of(size, sizes)) if anchor else given


def bytes_of(
    plan: Plan, mode: Mode, sizes: Mapping[str, int], axes: Axes, role: Role, of_input: str = "", pooled: bool = False
) -> int:
    """Bytes of a tensor at these values of the spec's symbols, by the dtype that its role has in the mode.

    It has one value for each element of `axes`. of_input: the input of the module whose shape it has instead, because
    it has fewer rows than the program. pooled: whether it has a row for each window of positions.
    """
    width = FIXED_WIDTH.get(role) or WIDTH[mode.roles[role]]
    if pooled:
        return windows_of(plan, sizes) * value_of(plan.chain.channels, sizes) * width
    return math.prod(shape_of_input(plan, of_input, sizes) if of_input else shape(plan, axes, sizes)) * width


def tensor_bytes(plan: Plan, mode: Mode, sizes: Mapping[str, int], tensor: Tensor) -> int:
    """Bytes of a tensor; none of one that the kernels do not read or write in this mode."""
    if not is_read(mode, tensor) or not is_written(mode, tensor):
        return 0
    of_input = tensor.samples or (tensor.name if tensor.compact else "")
    return bytes_of(plan, mode, sizes, tensor.axes, tensor.role, of_input, tensor.pool is not None)


def kernel_bytes(plan: Plan, mode: Mode, sizes: Mapping[str, int], kernel: Kernel) -> int:
    """Bytes that a kernel moves."""
    reads, writes = moved_by(mode, kernel)
    return sum(tensor_bytes(plan, mode, sizes, tensor) for tensor in (*reads, *writes))


def moved_by(mode: Mode, kernel: Kernel) -> tuple[list[Tensor], list[Tensor]]:
    """What a kernel reads and what it writes in this mode; nothing where it is not launched."""
    writes = [tensor for tensor in kernel.writes if is_written(mode, tensor)]
    idle = kernel.writes and not writes and not kernel.partial_sums
    return [] if idle else [tensor for tensor in kernel.reads if is_read(mode, tensor)], writes


def read_of(plan: Plan, program: Program) -> list[Tensor]:
    """What kernels of a program read in any mode that is built."""
    return [tensor for tensor in program.inputs if any(is_read(each, tensor) for each in plan.modes if is_built(each))]


def program_bytes(plan: Plan, mode: Mode, sizes: Mapping[str, int], program: Program) -> int:
    """The fewest bytes that a program moves: each input read once, each result written once."""
    if not is_launched(mode, program):
        return 0
    return sum(tensor_bytes(plan, mode, sizes, t) for t in (*read_of(plan, program), *program.outputs))
