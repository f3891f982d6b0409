"""From a module to the text of its spec: traced in both modes, matched, written, planned and compared."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.aten.nodes import shape
from fusegen.errors import Diagnostic, SpecError
from fusegen.importing.checks.check import NotFollowed, compare
from fusegen.importing.drafts.spec_draft import SpecDraft, check_parametrised, check_tied, make_spec_draft
from fusegen.importing.drafts.write import spec_draft_text
from fusegen.importing.reading.dropouts import without_drops
from fusegen.importing.reading.forms import owned, recognised
from fusegen.importing.reading.read import Reader
from fusegen.importing.reading.values import Values
from fusegen.importing.steps.chain import Steps
from fusegen.importing.traces.arguments import Arguments
from fusegen.importing.traces.constructor import Constructor
from fusegen.importing.traces.distinct_sizes import distinct_sizes
from fusegen.importing.traces.positions import Positions
from fusegen.importing.traces.source_locations import of_error, refusal
from fusegen.importing.traces.trace import Trace, forward_of, trace
from fusegen.plan.load import planned_document
from fusegen.plan.modules.module import ModulePlan
from fusegen.progress import tell, within
from fusegen.spec.yaml import parse_yaml

Given = Sequence[Any] | Mapping[str, Any] | None
"""The arguments of a constructor, if they are known."""

_STAGES = 3
_ONE_CHAIN = "only batch norm and dropout know the mode in a chain"


def from_module(
    module: nn.Module,
    example_inputs: Sequence[Tensor],
    *,
    arguments: Given = None,
    name: str | None = None,
) -> str:
    """The text of a spec whose module computes what `module` does and takes its state_dict.

    The module is run, and nothing else. arguments: what its constructor was called with: sizes and numbers that come
    from these stay arguments; without them, sizes are numbers of the spec. name: the spec's; by default the class's in
    small letters. Raises fusegen.errors.SpecError with the line of the module's source that a chain cannot express, or
    where the spec's module differs from this one in double precision.
    """
    with torch.random.fork_rng(devices=[]):
        return _imported(module, example_inputs, arguments, name)


def _imported(
    module: nn.Module,
    example_inputs: Sequence[Tensor],
    arguments: Given,
    name: str | None,
) -> str:
    if not example_inputs or not all(isinstance(x, Tensor) for x in example_inputs):
        raise refusal("FG701", "the example inputs are no tensors", None, "inputs of a chain are tensors")
    check_tied(module)
    check_parametrised(module)
    constructor = None if arguments is None else _constructor(type(module), arguments)
    inputs = [x.detach() for x in example_inputs]
    positions = Positions.of(module, inputs)
    apart = positions.small(module, inputs) if positions else distinct_sizes(module, inputs)
    chosen = name or snake_case(type(module).__name__)
    try:
        return _read(module, apart, Arguments(module, apart, constructor, positions, inputs), chosen)
    except SpecError as error:
        if not _is_of_sizes(error, apart, inputs):
            raise
    return _read(module, inputs, Arguments(module, inputs, constructor, positions, inputs), chosen)


def _is_of_sizes(error: SpecError, apart: Sequence[Tensor], given: Sequence[Tensor]) -> bool:
    """Whether an error may come of sizes that the inputs as they are given have not."""
    sizes, own = ({str(size) for x in inputs for size in x.shape} for inputs in (apart, given))
    words = {word for each in error.diagnostics for word in re.findall(r"[0-9]+", each.message)}
    is_untraceable = any(each.code == "FG701" for each in error.diagnostics)
    return sizes != own and (is_untraceable or not words.isdisjoint(sizes - own))


def _check_free(traced: Trace, known: Arguments) -> None:
    """Raises SpecError where a size is fixed that is not the one of the inputs as they are given."""
    inputs = [(node, leaf) for node, leaf in traced.leaves.items() if leaf.kind == "input"]
    for (node, leaf), own in zip(inputs, known.shapes, strict=True):
        if any(isinstance(size, int) and size != given for size, given in zip(shape(node), own, strict=True)):
            raise refusal("FG701", f"the input '{leaf.name}' has a size that is fixed", forward_of(traced.module))


def _read(module: nn.Module, inputs: Sequence[Tensor], known: Arguments, chosen: str) -> str:
    spatial = known.positions.spatial if known.positions else 0
    tell("tracing", 0, _STAGES)
    traces = trace(module, inputs, True, spatial), trace(module, inputs, False, spatial)
    _check_free(traces[0], known)
    known.fix({leaf.name for leaf in traces[0].leaves.values() if leaf.kind == "input"})  # a spec has each name once
    origin = _origin(type(module))
    while True:
        tell("reading and planning", 1, _STAGES)
        found = make_spec_draft(traces[0], _steps(*traces, known), known)
        text = spec_draft_text(found, chosen, origin, [])
        planned = _plan(text, found)
        try:
            with within("comparing", 2, _STAGES):
                remarks = compare(planned, found, known)
        except NotFollowed as more:
            known.fix(more.names)
            continue
        return spec_draft_text(found, chosen, origin, remarks) if remarks else text


def snake_case(name: str) -> str:
    """MatmulBn -> matmul_bn."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).strip("_").lower()


def _constructor(make: type[nn.Module], arguments: Given) -> Constructor:
    try:
        found = Constructor.of(make, arguments)
        found.examine()
    except Exception as error:
        message = f"the constructor of {make.__name__} cannot be called: {type(error).__name__}: {error}"
        raise refusal("FG701", message[:300], of_error(error)) from None
    return found


def _steps(training: Trace, evaluation: Trace, known: Arguments) -> Steps:
    """The steps of both traces, which have to be the same, but for what is dropped in training alone."""
    values = Values()
    results = [
        [owned(recognised(each, values), values) for each in Reader(trace, known, values).results()]
        for trace in (training, evaluation)
    ]
    names = {leaf.name for leaf in training.leaves.values()} | dict(training.module.named_children()).keys()
    names |= {*known.attributes, "batch", "channels"}
    names |= {*(known.constructor.values if known.constructor else ())}
    inputs = [leaf.name for leaf in training.leaves.values() if leaf.kind == "input"]
    found, undropped, other = (
        Steps(each, inputs, names, training.several)
        for each in (results[0], without_drops(results[0], values), results[1])
    )
    for index, draft in enumerate(undropped.found):
        if [draft.data] != [each.data for each in other.found[index : index + 1]]:
            raise refusal("FG709", "the module computes something else in evaluation", draft.place, _ONE_CHAIN)
    if len(other.found) > len(undropped.found) or other.outputs != undropped.outputs:
        place = other.found[min(len(undropped.found), len(other.found) - 1)].place
        raise refusal("FG709", "the module computes more in evaluation", place, _ONE_CHAIN)
    return found


def _plan(text: str, found: SpecDraft) -> ModulePlan:
    """The plan of the text. What it refuses of a step is told with the line of the module that is the step."""
    document = parse_yaml(text, "the imported spec")
    try:
        return planned_document(document)
    except SpecError as error:
        lines = {document.location(("chain", index)).line: each.place for index, each in enumerate(found.chain)}
        diagnostics = []
        for each in error.diagnostics:
            place = lines.get(each.location.line) if each.location else None
            location = place.location() if place else None
            diagnostics.append(
                Diagnostic(each.code, each.message, location, each.hint, place.source if place else None)
            )
        raise SpecError(diagnostics) from None


def _origin(cls: type) -> str:
    """The class and its file, as far as these stay the same from run to run."""
    try:
        file = inspect.getsourcefile(cls)
    except (TypeError, OSError):  # a class of C, and one of a notebook or of an interactive session
        file = None
    return f"{cls.__name__} in {file.rpartition('/')[2]}" if file else cls.__name__
