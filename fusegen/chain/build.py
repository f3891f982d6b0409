"""From a spec to a Chain: walks the steps, lets each add itself, and collects every mistake."""

from __future__ import annotations

from fusegen.chain.builder import ChainBuilder
from fusegen.chain.diagnostics import Mistakes, StepError
from fusegen.chain.model import Chain
from fusegen.errors import Diagnostic, SpecError
from fusegen.ir.graph import verify


def build_chain(spec, document, training: bool) -> Chain:
    """The chain of `spec` for training or evaluation. Raises SpecError with every mistake in it."""
    chain, mistakes = examine_chain(spec, document, training)
    if mistakes:
        raise SpecError(mistakes)
    return chain


def examine_chain(spec, document, training: bool) -> tuple[Chain, list[Diagnostic]]:
    """The chain, and every mistake in it. A chain with mistakes is good for nothing but to look for more of them.

    spec: a SpecModel, or a PartialSpec. document: where its fields stand in the file.
    """
    mistakes = Mistakes(document, spec.unreadable)
    builder = ChainBuilder(spec, mistakes, training)
    written = document.data.get("chain", [])
    running = builder.start()
    for index, step in enumerate(spec.chain):
        mistakes.enter(index)
        builder.step = index
        if step is None:
            builder.pass_over(written[index], running)
            continue
        try:
            running = step.build(builder, running)
        except StepError as error:
            mistakes.refuse(error.code, error.message, error.field, error.hint)
        builder.remember(step.save, running)
        builder.assume([written[index].get(key) for key in sorted(mistakes.missing_keys)], running)
    chain = builder.finish(running)
    if not mistakes.found:
        verify([chain.result, *chain.updates.values()])
    return chain, mistakes.found
