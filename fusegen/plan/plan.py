"""From a spec to its plan: the variants of the module, each with a forward and a backward program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fusegen.chain.build import build_chain, examine_chain, examine_numbers
from fusegen.chain.model import Chain
from fusegen.errors import SpecError
from fusegen.plan.epilogue import is_split, reason, why_after_product
from fusegen.plan.folding import Folding
from fusegen.plan.ingredients import ingredients
from fusegen.plan.model import Mode, Program, Tensor, Variant
from fusegen.plan.modes import modes, refused_modes
from fusegen.plan.outer import with_outer
from fusegen.plan.over_ranks import RankPlan, plan_over_ranks
from fusegen.plan.proof import prove_saved
from fusegen.plan.refusals import refusals, synchronised
from fusegen.plan.same import why_same, with_same
from fusegen.plan.tuning import Tuning
from fusegen.spec.document import Document
from fusegen.spec.model import SpecModel
from fusegen.spec.validate import merge


@dataclass(frozen=True)
class Plan:
    """Everything that rendering needs to know of a package: of a region of a module.

    tuning: by architecture; empty where nothing was measured. over_ranks: training with the statistics of several
    ranks, where the spec has it.
    """

    spec: SpecModel
    variants: tuple[Variant, ...]
    modes: tuple[Mode, ...]
    tuning: Tuning = ()
    over_ranks: RankPlan | None = None

    @property
    def programs(self) -> list[Program]:
        """Every program: forward and backward of each variant, then those over ranks."""
        found = [program for variant in self.variants for program in (variant.forward, variant.backward)]
        return [*found, *(self.over_ranks.programs if self.over_ranks else ())]

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
        others = [*(["split"] if self.has_precisions else []), *(["ranks_merge"] if self.over_ranks else [])]
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
    over_ranks = None
    if synchronised(spec):
        chain = build_chain(spec, document, training=True, over_ranks=True)
        over_ranks = plan_over_ranks(ingredients(spec, chain, found))
    for variant in (*variants, *([over_ranks.variant] if over_ranks else ())):
        prove_saved(variant.forward, variant.backward)
    return Plan(spec, variants, found, over_ranks=over_ranks)


def _variant(spec: SpecModel, name: str, chain: Chain, found: Sequence[Mode]) -> Variant:
    prefix = f"{name}_" if name else ""
    of, graph = ingredients(spec, chain, found), chain.graph
    forward_outputs = [Tensor(of.result, chain.result.node, "output"), *(each.tensor for each in of.further), *of.saved]
    forward_outputs += [Tensor(buffer, value, "parameter", optional=True) for buffer, value in chain.updates.items()]
    forward_outputs += [tensor for tensor in of.sources if tensor.role == "count"]
    forward = Folding(
        graph, f"{prefix}forward", of.sources, forward_outputs, inexact=of.inexact, without=of.without
    ).program()
    if is_split(spec):
        forward = replace(forward, reasons=(*forward.reasons, reason(forward)))
    gradients = with_same(chain, of.gradients, [of.grad, *of.grads])
    reasons = [*of.reasons, *why_same(gradients)]
    backward = Folding(graph, f"{prefix}backward", of.read, gradients, reasons, of.inexact, of.without).program()
    forward, backward = with_outer(chain, forward, backward, of.saved)
    needs_source = any(tensor.name == chain.source.name for tensor in backward.given)
    return Variant(name, chain, forward, backward, tuple(of.saved), needs_source, of.result, of.grad.name, of.further)
