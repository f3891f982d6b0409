"""What `invariant: rows` cannot promise: each reason why a row's bits would depend on other rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusegen.chain.model import Chain
from fusegen.errors import Diagnostic
from fusegen.ir.graph import ancestors
from fusegen.ops.called_layer import CalledLayer
from fusegen.plan.programs.units import Unit, unit_of
from fusegen.plan.regions.region import Region
from fusegen.spec.document import Document
from fusegen.spec.partial import AnySpec

_HINT = "leave 'invariant' out"


def row_dependences(spec: AnySpec, chain: Chain, document: Document) -> Iterator[Diagnostic]:
    """Of the chain of one region."""
    if getattr(spec, "invariant", None) is None:
        return
    nodes = ancestors([chain.result.node, *chain.result.further.values()])
    why = ""
    if chain.convolution:
        why = "the library may add up a convolution in another order for another number of images"
    elif chain.spatial:
        why = "images have sums over positions, which blocks share by the number of images"
    elif chain.batched:
        why = "the library multiplies a batch of matrices in an order that depends on their number"
    elif any(node.is_reduction and unit_of(node.axes) not in (Unit.ROW, Unit.GROUP) for node in nodes):
        why = "values follow from several rows"
    elif chain.dropouts:
        why = "a dropout draws by a row's place in the batch"
    elif chain.compact:
        why = f"the gradient of the input '{next(iter(chain.compact))}', which has fewer rows, is a sum over rows"
    elif chain.result.in_chunks:
        why = "the gradients of a loss in chunks are rounded otherwise where one chunk has all rows"
    elif chain.parameters_of_rows:
        why = f"parameter '{chain.parameters_of_rows[0]}' has values of each row"
    if why:
        message = f"the bits of a row would depend on the rest of the batch: {why}"
        yield document.diagnostic("FG401", message, ("invariant",), key=True, hint=_HINT)


def called_layers(spec: AnySpec, regions: Sequence[Region], document: Document) -> Iterator[Diagnostic]:
    """Layers that PyTorch calls between regions: the order of their sums is the library's. Some only move values."""
    if getattr(spec, "invariant", None) is None:
        return
    for region in regions:
        step = region.steps[0]
        if region.is_called and (step.has_kernels or isinstance(step, CalledLayer)):
            message = f"the bits of a row would depend on the rest of the batch: PyTorch calls {step.op}"
            yield document.diagnostic("FG401", message, ("chain", region.places[0], "op"), hint=_HINT)
