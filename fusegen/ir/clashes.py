"""Names of a chain's parts that the generated ops would give to two things."""

from __future__ import annotations

from collections.abc import Iterator

from fusegen.ir.chain import Chain
from fusegen.ir.names import OP_NAMES, input_type
from fusegen.spec.document import DocumentPath


def clashes(chain: Chain) -> list[tuple[str, DocumentPath]]:
    """What two things of the generated ops would be called alike, once submodules and attributes stand beside each
    other. A message for each pair, and where the later of the two stands in the spec."""
    first: dict[str, DocumentPath] = {}
    found: dict[tuple[DocumentPath, ...], str] = {}
    for name, place in _op_names(chain):
        if name not in first:
            first[name] = place
        else:
            found.setdefault(tuple(sorted((first[name], place), key=_order)), name)
    return [(f"the generated code would call two things '{name}'", later) for (_, later), name in found.items()]


def _order(place: DocumentPath) -> tuple[bool, tuple[str, ...]]:
    """What nothing in the spec is the cause of, then the inputs, then the steps."""
    return place[:1] == ("chain",), tuple(f"{step:9}" if isinstance(step, int) else step for step in place)


def _op_names(chain: Chain) -> Iterator[tuple[str, DocumentPath]]:
    """Every name of the generated ops, and where the spec has its cause."""
    places = chain.places
    for name in sorted(OP_NAMES - {"y"}):
        yield name, ()
    tensors = [*(tensor.name for tensor in chain.inputs), *chain.parameters, *chain.buffers]
    placed = [(tensor, places[tensor]) for tensor in tensors]
    if chain.contraction:
        contracted = (chain.contraction.operand, chain.contraction.weight, chain.contraction.product)
        placed += [(tensor, places[chain.contraction.name]) for tensor in contracted]
    for tensor, place in placed:
        for name in (tensor, f"{tensor}_in", f"grad_{tensor}"):
            yield name, place
    for name in ("y", "y_in", "grad_y"):
        yield name, ()
    for name in chain.constants:
        yield name, places[name]
    for norm, _ in chain.batch_norms:
        for name in (f"{norm}_mean", f"{norm}_var", f"{norm}_batches"):
            yield name, places[f"{norm}_eps"]
    for name in dict.fromkeys(tensor.name for tensor in chain.inputs):
        yield input_type(name), places[name]
