"""From a spec to its plan: the variants of the module, each with a forward and a backward program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fusegen.chain.build import build_chain, examine_chain, examine_numbers
from fusegen.chain.model import Chain
from fusegen.errors import SpecError
from fusegen.plan.launches.tuning import Tuning
from fusegen.plan.modules.refusals import refusals, synchronised
from fusegen.plan.modules.sync_batch_norm import RankPlan, plan_sync_batch_norm
from fusegen.plan.programs.contiguous_layout import with_contiguous_layout
from fusegen.plan.programs.epilogue import is_split, reason, why_after_product
from fusegen.plan.programs.gradient_aliases import alias_notes, with_gradient_aliases
from fusegen.plan.programs.model import Mode, Program, Tensor, Variant
from fusegen.plan.programs.modes import modes, refused_modes
from fusegen.plan.programs.product_gradient import with_place
from fusegen.plan.programs.program_io import ProgramIO, program_io
from fusegen.plan.proofs.proof import prove_saved
from fusegen.plan.schedules.folding import Folding
from fusegen.spec.document import Document
from fusegen.spec.model import SpecModel
from fusegen.spec.validate import merge


@dataclass(frozen=True)
class Plan:
    """Everything that rendering needs to know of a package: of a region of a module.

    tuning: by architecture; empty where nothing was measured. sync_batch_norm: training with the statistics of several
    ranks, where the spec has it.
    """

    spec: SpecModel
    variants: tuple[Variant, ...]
    modes: tuple[Mode, ...]
    tuning: Tuning = ()
    sync_batch_norm: RankPlan | None = None

    @property
    def programs(self) -> list[Program]:
        """Every program: those of each variant, then those over ranks."""
        found = [program for variant in self.variants for program in variant.programs]
        return [*found, *(self.sync_batch_norm.programs if self.sync_batch_norm else ())]

    @property
    def chain(self) -> Chain:
        """The training variant's chain: it has every parameter, buffer and constant."""
        return self.variants[0].chain

    @property
    def has_precisions(self) -> bool:
        """Whether there is a product of float32 operands, which a module may want in another precision than IEEE's."""
        return self.chain.contraction is not None and "float32" in self.spec.dtypes

    def in_epilogue(self, program: Program) -> bool:
        """Whether a program is compiled for the epilogue of the product too: forward ones alone are."""
        forward = any(program is variant.forward for variant in self.variants)
        return forward and is_split(self.spec) and why_after_product(program) is None

    @property
    def op_names(self) -> list[str]:
        """What the package registers below torch.ops.fusegen."""
        others = [*(["split"] if self.has_precisions else []), *(["ranks_merge"] if self.sync_batch_norm else [])]
        others += ["scale"] if self.chain.result.in_chunks else []
        others += [f"{each.backward.name}_in_place" for each in self.variants if each.overwrites_product]
        return [f"{self.spec.name}_{name}" for name in (*(program.name for program in self.programs), *others)]


def make_plan(spec: SpecModel, document: Document, known: Mapping[str, str] | None = None) -> Plan:
    """Plans a validated spec. known: as modes() has it. Raises SpecError where the chain does not fit together or
    cannot be scheduled."""
    training, diagnostics = examine_chain(spec, document, training=True)
    diagnostics = merge(diagnostics, refusals(spec, training, document)) or examine_numbers(spec, document)
    diagnostics = diagnostics or refused_modes(spec, document, training, known or {})
    if diagnostics:
        raise SpecError(diagnostics)
    chains = {"": training}
    if training.dropouts or any(norm.tracked for norm in training.batch_norms):
        chains = {"train": training, "eval": build_chain(spec, document, training=False)}
    found = tuple(modes(spec, training, known or {}))
    variants = tuple(_variant(spec, name, chain, found) for name, chain in chains.items())
    sync_batch_norm = None
    if synchronised(spec):
        chain = build_chain(spec, document, training=True, sync_batch_norm=True)
        sync_batch_norm = plan_sync_batch_norm(program_io(spec, chain, found))
    for variant in (*variants, *([sync_batch_norm.variant] if sync_batch_norm else ())):
        prove_saved(variant.forward, variant.backward)
    return Plan(spec, variants, found, sync_batch_norm=sync_batch_norm)


def _variant(spec: SpecModel, name: str, chain: Chain, found: Sequence[Mode]) -> Variant:
    prefix = f"{name}_" if name else ""
    of, graph = program_io(spec, chain, found), chain.graph
    saved = (*of.stored_taps, *of.saved)
    result = Tensor(of.result, chain.result.node, "output", pool=chain.result.pool)
    forward_outputs = [result, *(each.tensor for each in of.further), *saved]
    forward_outputs += [Tensor(buffer, value, "parameter", optional=True) for buffer, value in chain.updates.items()]
    forward_outputs += [tensor for tensor in of.sources if tensor.role == "count"]
    forward = Folding(
        graph, f"{prefix}forward", of.sources, forward_outputs, inexact=of.inexact, without=of.without
    ).program()
    if is_split(spec):
        forward = replace(forward, reasons=(*forward.reasons, reason(forward)))
    gradients = with_gradient_aliases(chain, of.gradients, [of.grad, *of.grads])
    reasons = [*of.reasons, *alias_notes(gradients)]
    backward = Folding(graph, f"{prefix}backward", of.read, gradients, reasons, of.inexact, of.without).program()
    forward, backward = with_contiguous_layout(chain, forward, backward, of.saved)
    needs_source = any(tensor.name == chain.source.name for tensor in backward.given)
    chunk = _chunk(of, f"{prefix}chunk") if chain.result.in_chunks else None
    backward, in_place = with_place(chain, backward)
    return Variant(
        name, chain, forward, backward, saved, needs_source, of.result, of.grad.name, of.further, chunk, in_place
    )


def _chunk(of: ProgramIO, name: str) -> Program:
    """The losses and all gradients of some rows: nothing is saved from one pass to the other."""
    outputs = [Tensor(of.result, of.chain.result.node, "output"), *of.gradients]
    reasons = ["the losses and their gradient in one program: some rows at a time, in the memory of their product"]
    read = [replace(of.grad, role="accumulator"), *of.sources]  # such as the inverse of a number of rows
    return Folding(of.chain.graph, name, read, outputs, reasons, of.inexact, of.without).program()
