"""Which tensors of a chain of images may be [batch, channels, positions], as contiguous ones are.

A convolution's result and its gradient are [batch * positions, channels] in any case: in channels_last. What comes from
outside or goes there is so, too, where the module's result is in channels_last. Where it is contiguous, the passes that
meet such tensors run as tile kernels, which read and write both orders, or as plane kernels, where they meet no others.
An input with fewer rows is read as [rows, channels] in any case, and its gradient is made so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fusegen.chain.model import Chain
from fusegen.plan.programs.model import Program, Tensor

AS_SUCH = "contiguous results, gradients and further inputs are read and written as such: the kernels copy nothing"
COPIES = "contiguous results, gradients and further inputs are copied: "
DEPTHWISE = (
    "the convolution is depthwise: in float32 its gradient is copied into contiguous memory for that of the weight, "
    "which PyTorch makes there several times as fast, unless the kernel is 3 x 3 or 5 x 5"
)
FEW_CHANNELS = (
    "in 16 bits the forward convolution of few channels, or of an odd number, is made with zeros beside them, to a "
    "multiple of 32, where cuDNN is faster so by more than the copy takes; the gradients are of the operands without"
)
PRODUCT = (
    "the convolution is a product of matrices: cuBLAS makes it of a contiguous x, which is not copied for it, unless "
    "images are small, rows are no multiples of 16 bytes, or PyTorch's settings want other precisions of both libraries"
)
EXCHANGED = "the module copies the result, whose rows come behind the channels, and the gradient that comes to it"


def with_contiguous_layout(
    chain: Chain, forward: Program, backward: Program, saved: Sequence[Tensor]
) -> tuple[Program, Program]:
    """The programs of a variant with their outer tensors, and with the reason for or against having some.

    Both have some, or none has: the result of the one is what the other's gradient belongs to. saved: what the forward
    program makes for the backward one.
    """
    if chain.result.transposed:
        return replace(forward, reasons=(*forward.reasons, EXCHANGED)), backward
    if not chain.spatial:
        return forward, backward
    why = _why_copies(chain, forward, backward, saved)
    reason = AS_SUCH if why is None else COPIES + why
    if chain.convolution and chain.convolution.may_have_few_channels:
        forward = replace(forward, reasons=(*forward.reasons, FEW_CHANNELS))
    inner = {*chain.compact, *([] if chain.has_own_images else [chain.source.name])}
    found = []
    for program in (forward, backward):
        contiguous = () if why else tuple(t.name for t in _full(program) if not inner & {t.whole.name, t.gradient_of})
        found.append(replace(program, contiguous_layout=contiguous, reasons=(*program.reasons, reason)))
    if chain.convolution and chain.convolution.is_product:
        found[0] = replace(found[0], reasons=(*found[0].reasons, PRODUCT))
    if chain.convolution and chain.convolution.is_depthwise:
        found[1] = replace(found[1], reasons=(*found[1].reasons, DEPTHWISE))
    return found[0], found[1]


def _why_copies(chain: Chain, forward: Program, backward: Program, saved: Sequence[Tensor]) -> str | None:
    """Why the programs of a variant cannot be tile or plane kernels."""
    if chain.contraction:
        return "the product has the channels innermost"
    if chain.result.pool:
        return "a window has all channels of its positions"
    if chain.result.of_rows:
        return "the result has one value for each row"
    if any("N" in node.axes and not node.is_full for node in chain.further.values()):
        return "an input has one value for all channels of a position"
    if chain.masks:
        return "a mask is no tensor of numbers"
    if forward.draws or backward.draws:
        return "dropout draws for neighbours in channels_last"
    if chain.number_of_parts > 1 and chain.has_own_images:
        return "the source has several parts"
    for program in (forward, backward):
        for phase in program.phases:
            if not phase.unit.leaves_partials:
                return f"{program.name} reduces each {phase.unit.value}, of which a tile has only some channels"
    if any(tensor.is_full for tensor in saved):
        return "the forward pass saves a tensor of their size"
    return None


def _full(program: Program) -> list[Tensor]:
    """Tensors of all elements that a program reads or writes, once each."""
    return list({t.name: t for t in (*program.inputs, *program.outputs) if t.is_full}.values())
