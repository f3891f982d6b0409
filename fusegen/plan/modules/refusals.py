"""What the planner refuses of a chain that fits together, each with its place and reason."""

from __future__ import annotations

from collections.abc import Iterator

from fusegen.chain.images import spatial_in_front
from fusegen.chain.model import Chain
from fusegen.errors import Diagnostic
from fusegen.ir.graph import ancestors
from fusegen.plan.launches.devices import is_known, remedy
from fusegen.plan.modules.row_invariance import row_dependences
from fusegen.plan.regions.rows_of_images import row_steps
from fusegen.spec.document import Document
from fusegen.spec.partial import AnySpec

# Kernels know passes and the tensors of all elements by masks of 32 bits. Besides the passes of norms and reductions
# there is the last one, and that over the channels. Besides inputs and parameters there is the product, and backward
# its gradient.
MAX_PASSES = 30
MAX_FULL_TENSORS = 30


def refusals(spec: AnySpec, chain: Chain, document: Document) -> Iterator[Diagnostic]:
    """Every reason why the chain cannot be planned."""
    yield from _unknown_targets(spec, document)
    yield from all_called(spec, document)
    yield from _precision_without_float32(spec, document)
    yield from _norms_over_ranks(spec, chain, document)
    yield from _several_results(spec, chain, document)
    yield from _loss_in_chunks(spec, chain, document)
    yield from row_dependences(spec, chain, document)
    yield from _numbers_of_groups(chain, document)
    yield from _parameters_of_the_rows(chain, document)
    yield from _too_many_passes(spec, document)
    yield from _too_many_tensors(spec, chain, document)


def _unknown_targets(spec: AnySpec, document: Document) -> Iterator[Diagnostic]:
    for index, target in enumerate(spec.targets):
        if not is_known(target):
            message = f"unsupported target '{target}'"
            yield document.diagnostic("FG212", message, ("targets", index), hint=remedy(target))


def all_called(spec: AnySpec, document: Document) -> Iterator[Diagnostic]:
    """A chain of layers that PyTorch calls has nothing for kernels."""
    steps = zip(spec.chain, spatial_in_front(spec), strict=True)
    if any(row_steps(spec)):
        return
    windows = not spec.is_region  # which kernels store behind a convolution, and what is a region is behind one
    if spec.chain and all(s and (s.is_called(n) or (windows and s.stores_windows(n))) for s, n in steps):
        message = "PyTorch calls every step of this chain: kernels have nothing to do"
        hint = "put functions in front of it or behind"
        yield document.diagnostic("FG308", message, ("chain", 0, "op"), hint=hint)


def _precision_without_float32(spec: AnySpec, document: Document) -> Iterator[Diagnostic]:
    if not set(spec.dtypes) <= {"bfloat16", "float16"}:
        return
    for index, step in enumerate(spec.chain):
        precision = getattr(step, "precision", "ieee")
        if precision != "ieee":
            message = f"precision '{precision}' is of float32 modules, and 'dtypes' has no float32"
            yield document.diagnostic("FG205", message, ("chain", index, "precision"), hint="add float32 to 'dtypes'")


def synchronised(spec: AnySpec) -> list[int]:
    """The steps that take the statistics of all ranks."""
    return [index for index, step in enumerate(spec.chain) if getattr(step, "sync", False)]


def _norms_over_ranks(spec: AnySpec, chain: Chain, document: Document) -> Iterator[Diagnostic]:
    """Each norm over ranks needs an exchange of its own, between which there would be further programs. The ops between
    exchanges take their source whole, draw nothing, and have no arguments of bool or of fewer rows."""
    steps = synchronised(spec)
    if not steps:
        return
    place, hint = ("chain", steps[0], "sync"), "split the chain in two"
    if chain.number_of_parts > 1:
        message = "a chain with a batch norm over ranks cannot divide its source into parts"
        yield document.diagnostic("FG401", message, place, hint=hint)
    if not chain.result.node.is_full:
        message = "a chain with a batch norm over ranks cannot have one value for each row or image as its result"
        yield document.diagnostic("FG401", message, place, hint=hint)
    if any(parameter.repeated for parameter in chain.parameters.values()):
        message = "a chain with a batch norm over ranks can have no norm of blocks of channels"
        yield document.diagnostic("FG401", message, place, hint=hint)
    if chain.result.transposed:
        message = "a chain with a batch norm over ranks has no result whose rows come behind the channels"
        yield document.diagnostic("FG401", message, place, hint=hint)
    if chain.dropouts:
        yield document.diagnostic("FG401", "a chain with a batch norm over ranks can have no dropout", place, hint=hint)
    broadcast = [name for name, node in {**chain.further, **chain.masks}.items() if not node.is_full]
    for name in {**chain.masks, **chain.broadcast_inputs, **dict.fromkeys(broadcast)}:
        if name in chain.masks:
            message = f"a chain with a batch norm over ranks can have no mask: '{name}'"
        else:
            message = (
                f"a chain with a batch norm over ranks takes inputs as large as its running value: '{name}' is not"
            )
        yield document.diagnostic("FG401", message, ("inputs", name), hint=hint)
    norms = [index for index, step in enumerate(spec.chain) if step is not None and step.op == "batch_norm"]
    if len(norms) > 1:
        message = "a chain with a batch norm over ranks can have no other batch norm"
        yield document.diagnostic("FG401", message, ("chain", norms[1], "op"), hint=hint)


def _several_results(spec: AnySpec, chain: Chain, document: Document) -> Iterator[Diagnostic]:
    """The ops over ranks return one."""
    if not spec.outputs:
        return
    if chain.result.transposed:
        message = "a chain whose result has the rows behind the channels returns one result"
        yield document.diagnostic("FG401", message, ("outputs",), key=True)
    steps = synchronised(spec)
    if steps:
        message = "a chain with a batch norm over ranks has one result, and nothing else of it is taken elsewhere"
        yield document.diagnostic("FG401", message, ("chain", steps[0], "sync"))


def _loss_in_chunks(spec: AnySpec, chain: Chain, document: Document) -> Iterator[Diagnostic]:
    """Its kernels see some rows of the product, and take gradients of these alone."""
    if not chain.result.in_chunks:
        return
    nodes = ancestors([chain.result.node])
    rows = chain.parameters_of_rows
    why = ""
    if chain.contraction is None or chain.spatial:
        why = "no linear layer of [rows, features] begins the chain or its last region"
    elif any(node.is_reduction and "N" not in node.axes for node in nodes):
        why = "a value between the linear layer and the loss follows from all rows"
    elif chain.dropouts:
        why = "a dropout between the linear layer and the loss draws by the place among all rows"
    elif chain.result.further:
        why = f"'{next(iter(chain.result.further))}' is returned, too, or taken elsewhere"
    elif chain.compact:
        why = f"the input '{next(iter(chain.compact))}' has fewer rows"
    elif rows:
        why = f"parameter '{rows[0]}' has values of each row"
    if why:
        place, hint = ("chain", len(spec.chain) - 1, "chunk"), "leave 'chunk' out"
        yield document.diagnostic("FG401", f"the loss cannot be made some rows at a time: {why}", place, hint=hint)


def _numbers_of_groups(chain: Chain, document: Document) -> Iterator[Diagnostic]:
    (first, *others) = [count for count in chain.group_counts if count != 1] or [1]
    for count in others:
        message = f"one chain can normalise by one number of groups, not by {first} and {count}"
        yield document.diagnostic("FG401", message, chain.places.groups[count])


def _parameters_of_the_rows(chain: Chain, document: Document) -> Iterator[Diagnostic]:
    for parameter in chain.parameters.values():
        if "N" in parameter.axes and not parameter.axes == chain.graph.view:
            message = f"parameter '{parameter.name}' has one value for each row: no kernel takes its gradient's sums"
            yield document.diagnostic("FG401", message, (*chain.places.of[parameter.name][:2], "shape"))


def _too_many_passes(spec: AnySpec, document: Document) -> Iterator[Diagnostic]:
    passes = 0
    for index, step in enumerate(spec.chain):
        passes += step.passes if step is not None else 0
        if passes > MAX_PASSES:
            message = f"norms and reductions of a chain can take at most {MAX_PASSES} passes over its elements"
            yield document.diagnostic("FG401", message, ("chain", index), hint="split the chain in two")
            return


def _too_many_tensors(spec: AnySpec, chain: Chain, document: Document) -> Iterator[Diagnostic]:
    names = [name for name, node in {**chain.further, **chain.masks}.items() if node.is_full]
    names += [parameter.name for parameter in chain.parameters.values() if parameter.axes == chain.graph.view]
    stored = [index for index, step in enumerate(spec.chain) if step is not None and step.stores_operand]
    if len(names) + len(stored) > MAX_FULL_TENSORS:
        message = f"a chain can read at most {MAX_FULL_TENSORS} tensors of its result's size besides its first input"
        if stored:
            message += ", with what amax and amin store for the backward pass"
        place = chain.places.of[names[MAX_FULL_TENSORS]][:2] if len(names) > MAX_FULL_TENSORS else ("chain", stored[-1])
        yield document.diagnostic("FG401", message, place, hint="split the chain in two")
