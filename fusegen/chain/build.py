"""From a spec to a Chain: walks the steps, lets each add itself, and collects the diagnostics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusegen.chain.builder import ChainBuilder
from fusegen.chain.diagnostics import Diagnostics, StepError
from fusegen.chain.model import Chain
from fusegen.chain.operands import KEEP
from fusegen.chain.trailing import wanted_dimensions
from fusegen.chain.transpose import why_not_transposed
from fusegen.errors import Diagnostic, SpecError
from fusegen.ir.graph import Node, verify
from fusegen.spec.document import Document
from fusegen.spec.model import SpecModel
from fusegen.spec.numbers import GIVEN, Numbers
from fusegen.spec.partial import AnySpec
from fusegen.spec.validate import merge


def build_chain(spec: AnySpec, document: Document, training: bool, sync_batch_norm: bool = False) -> Chain:
    """The chain of `spec` for training or evaluation. sync_batch_norm: for training with the statistics of all ranks,
    as leaves, where a batch norm has `sync`. Raises SpecError with all diagnostics."""
    chain, diagnostics = examine_chain(spec, document, training, sync_batch_norm)
    if diagnostics:
        raise SpecError(diagnostics)
    return chain


def examine_chain(
    spec: AnySpec, document: Document, training: bool, sync_batch_norm: bool = False
) -> tuple[Chain, list[Diagnostic]]:
    """The chain and all diagnostics. A chain with any is good for nothing but to look for more of them.

    document: where the spec's fields stand in the file.
    """
    diagnostics = Diagnostics(document, spec.unreadable)
    builder = ChainBuilder(spec, diagnostics, training, sync_batch_norm)
    written = document.data.get("chain", [])
    running = builder.start()
    for index, step in enumerate(spec.chain):
        diagnostics.enter(index)
        builder.step = index
        if step is not None and step.from_ is not None:
            before = spec.chain[index - 1] if index else None
            if before is not None and not before.saved:
                hint = "the next step is from another one"
                diagnostics.add("FG306", "nothing uses the value of this step", ("chain", index - 1), hint, last=True)
            running = builder.branch(step.from_)
        builder.running.append(running)
        if step is None:
            builder.pass_over(written[index], running)
            continue
        if step.is_called(builder.shape.spatial):
            step.check_call(builder)
            builder.remember(step.save, running)
            continue
        if _refused(builder, diagnostics, index, running):
            builder.assume(step.saved, running)
            continue
        try:
            running = step.build(builder, running)
        except StepError as error:
            diagnostics.refuse(error.code, error.message, error.field, error.hint)
        builder.dropped_channels |= step.drops_channels
        if builder.dropped_channels and running is not None and running.is_full and not diagnostics.found:
            diagnostics.refuse(
                "FG309", f"{step.op} of [rows] and values of the channels: no dimension pairs", "op", KEEP
            )
        if not step.divides or step.save in step.saved:
            builder.remember(step.save, running)
        builder.assume([written[index].get(key) for key in sorted(diagnostics.missing_keys)], running)
    chain = builder.finish(running)
    if not diagnostics.found:
        verify([chain.result.node, *chain.result.further.values(), *chain.updates.values()])
    return chain, diagnostics.found


def examine_numbers(spec: SpecModel, document: Document) -> list[Diagnostic]:
    """What steps refuse of the numbers that arguments have by default and for planning, where sizes do not matter:
    these are the caller's.

    spec, document: in which examine_chain finds nothing.
    """
    found: list[Diagnostic] = []
    for key in GIVEN:
        numbers = Numbers(document, {step.op: type(step) for step in spec.chain}, key)
        if not numbers.names:
            continue
        known = {"chain": tuple(map(numbers.in_step, spec.chain)), "dims": dict.fromkeys(spec.dims)}
        known["arguments"] = {
            name: None if argument.type == "int" and name not in numbers.names else argument
            for name, argument in spec.arguments.items()
        }
        _, refused = examine_chain(spec.model_copy(update=known), numbers.document, training=True)
        found = merge(found, numbers.among(refused))
    return found


def _refused(builder: ChainBuilder, diagnostics: Diagnostics, index: int, running: Node | None) -> bool:
    """Whether a step cannot stand where it is, which is noted."""
    steps, step = builder.spec.chain, builder.spec.chain[index]
    of_rows = step.needs_elements and running is not None and not running.is_full
    if of_rows and not (step.takes_rows() and _keeps_dims(steps[:index])):
        shape = "[rows]" if builder.dropped_channels else "[rows, 1]"
        diagnostics.refuse("FG309", f"{step.op} needs [rows, channels], and the running value is {shape}", "op")
        return True
    if step.ends_chain and index + 1 < len(steps):
        diagnostics.refuse("FG308", f"{step.op} can only be the last step of a chain", "op")
    if builder.trailing and wanted_dimensions(step, builder.spec) not in (None, len(builder.trailing)):
        count = len(builder.trailing)
        message = f"{step.op} acts on the last dimension, and another norm of the chain on the last {count}"
        diagnostics.refuse("FG308", message, "op")
        return True
    if (builder.has_leading or builder.trailing) and step.needs_matrix():
        message = f"{step.op} takes inputs of two dimensions: PyTorch's looks at dimension 1"
        diagnostics.refuse("FG308", message, "op")
        return True
    why = why_not_transposed(builder, step)
    if why is not None:
        diagnostics.refuse("FG309", why, "op")
        return True
    why = step.not_over_rows() if builder.positions is None else None
    if why is not None:
        diagnostics.refuse("FG308", why, "op")
        return True
    why = step.not_over_positions() if builder.positions is not None else None
    if why is not None:
        where = "behind a convolution" if steps[0].spatial else "where dimension 1 is the channels"
        diagnostics.refuse("FG308", f"{step.op} cannot be {where}: {why}", "op")
        return True
    if builder.in_batches and step.needs_matrix():
        hint = "PyTorch takes dimension 1 for its channels, which are the last here"
        diagnostics.refuse("FG308", f"{step.op} cannot be behind bmm", "op", hint)
        return True
    return False


def _keeps_dims(steps: Sequence[Any]) -> bool:
    """Whether what steps make of a row is [rows, 1], not [rows]."""
    return all(getattr(step, "keepdim", True) for step in steps)
