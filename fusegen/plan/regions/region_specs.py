"""The spec of a region as a chain of its own, and where it stands in the file of the whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fusegen.plan.regions.broadcast_regions import without_ones
from fusegen.plan.regions.images import Images
from fusegen.plan.regions.region import Region
from fusegen.spec.document import Document, DocumentPath
from fusegen.spec.model import RESULT, SpecModel
from fusegen.spec.names import camel_case


def region_spec(spec: SpecModel, region: Region, images: Images) -> SpecModel:
    """The spec of a region as a chain of its own: it has what its steps refer to, and the rest as the whole has it.

    images: the dimensions of values between regions.
    """
    inputs = region.inputs
    if region.is_broadcast:
        source = next(iter(inputs.values()))
        inputs = {name: without_ones(shape, source) for name, shape in inputs.items()}
    steps = region.steps
    if region.frame is not None:
        inputs = dict.fromkeys(inputs, region.frame.shape)
        steps = tuple(step.over_rows() for step in steps)
    words = {word for step in region.steps for word in _words(step.model_dump())}
    words |= {word for shape in inputs.values() for word in _words(shape)}
    for name, argument in spec.arguments.items():
        if name in words and argument.type == "shape":
            words |= {dim for dim in argument.is_ if isinstance(dim, str)}
    outputs = None
    if len(region.results) > 1:
        names = {name for step in steps for name in step.saved}
        last = region.results[-1]
        if RESULT in names and last not in names:  # a value has the name that the one at the end would have
            steps, names = (*steps[:-1], steps[-1].model_copy(update={"save": last})), names | {last}
        outputs = tuple(name if name in names else RESULT for name in region.results)
    if steps[-1].save is not None and outputs is None:
        inside = {step.taken_value for step in steps} | {step.from_ for step in steps}
        if steps[-1].save not in inside:
            steps = (*steps[:-1], steps[-1].model_copy(update={"save": None}))
    made = spec.model_copy(
        update={
            "name": f"{spec.name}_{region.name}",
            "about_": f"{', '.join(step.op for step in steps)} ({region.name} of {spec.name})",
            "class_": spec.class_name + camel_case(region.name),
            "dims": {name: size for name, size in images.dims.items() if name in words},
            "arguments": {name: each for name, each in spec.arguments.items() if name in words},
            "inputs": inputs,
            "outputs": outputs,
            "state_dict": {},
            "chain": steps,
        }
    )
    made.written_in(spec.name, 0 if region.frame else region.spatial, images.made_by)
    return made


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        yield value.rpartition(" * ")[2]  # the symbol of "2 * hidden"
    elif isinstance(value, dict):
        for each in value.values():
            yield from _words(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _words(each)


def region_document(document: Document, region: Region) -> Document:
    """The places of a region's steps in the file of the whole."""
    places = {place: index for index, place in enumerate(region.places)}

    def moved(paths: Any) -> dict[DocumentPath, Any]:
        found = {}
        for path, place in paths.items():
            if path[0:1] == ("chain",) and len(path) > 1:
                if path[1] in places:
                    here = ("chain", places[path[1]], *path[2:])
                    found[here] = place
            elif path[0:1] != ("outputs",):
                found[path] = place
        return found

    data = {**document.data, "chain": [document.data["chain"][place] for place in region.places]}
    return replace(document, data=data, values=moved(document.values), keys=moved(document.keys))
