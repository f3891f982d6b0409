"""What the planner refuses of a chain that fits together, each with its place and reason."""

from __future__ import annotations

from collections.abc import Iterator

from fusegen.chain.model import Chain
from fusegen.errors import Diagnostic
from fusegen.ops.norms import Norm
from fusegen.plan.devices import DEVICES, is_known

# Kernels know passes and the tensors of all elements by masks of 32 bits. Each norm is a pass of its own; there is the
# last one, and that over the channels. Besides inputs and parameters there is the product, and backward its gradient.
MAX_NORMS = 30
MAX_FULL_TENSORS = 30


def refusals(spec, chain: Chain, document) -> Iterator[Diagnostic]:
    """Every reason why the chain cannot be planned. spec: a SpecModel or PartialSpec."""
    yield from _unknown_targets(spec, document)
    yield from _numbers_of_groups(chain, document)
    yield from _parameters_of_the_rows(chain, document)
    yield from _too_many_norms(spec, document)
    yield from _too_many_tensors(chain, document)


def _unknown_targets(spec, document) -> Iterator[Diagnostic]:
    for index, target in enumerate(spec.targets):
        if not is_known(target):
            message, hint = f"unsupported target '{target}'", f"supported: {', '.join(DEVICES)}"
            yield document.diagnostic("FG212", message, ("targets", index), hint=hint)


def _numbers_of_groups(chain: Chain, document) -> Iterator[Diagnostic]:
    (first, *others) = [count for count in chain.group_counts if count != 1] or [1]
    for count in others:
        message = f"one chain can normalise by one number of groups, not by {first} and {count}"
        yield document.diagnostic("FG401", message, chain.group_counts[count])


def _parameters_of_the_rows(chain: Chain, document) -> Iterator[Diagnostic]:
    for parameter in chain.parameters.values():
        if "N" in parameter.axes and not parameter.axes == chain.graph.view:
            message = f"parameter '{parameter.name}' has one value for each row: no kernel takes its gradient's sums"
            yield document.diagnostic("FG401", message, (*chain.places[parameter.name][:2], "shape"))


def _too_many_norms(spec, document) -> Iterator[Diagnostic]:
    norms = [index for index, step in enumerate(spec.chain) if isinstance(step, Norm)]
    if len(norms) > MAX_NORMS:
        message = f"a chain can have at most {MAX_NORMS} norms: each takes a pass of its own"
        yield document.diagnostic("FG401", message, ("chain", norms[MAX_NORMS]), hint="split the chain in two")


def _too_many_tensors(chain: Chain, document) -> Iterator[Diagnostic]:
    names = [name for name, node in chain.tail_inputs.items() if node is not chain.source]
    names += [parameter.name for parameter in chain.parameters.values() if parameter.axes == chain.graph.view]
    if len(names) > MAX_FULL_TENSORS:
        message = f"a chain can read at most {MAX_FULL_TENSORS} tensors of its result's size besides its first input"
        place = chain.places[names[MAX_FULL_TENSORS]][:2]
        yield document.diagnostic("FG401", message, place, hint="split the chain in two")
