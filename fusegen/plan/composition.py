"""A chain of several regions: the module around them, and a plan for each region that has kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fusegen.chain.operands import KEEP
from fusegen.errors import Diagnostic, SpecError
from fusegen.ir.axes import Dim
from fusegen.plan.autocast import KnownDtypes
from fusegen.plan.deferring import deferred
from fusegen.plan.devices import Device
from fusegen.plan.dimensions import Dimensions, dimensions, fixed_dimensions
from fusegen.plan.images import Images
from fusegen.plan.model import Mode
from fusegen.plan.modes import modes_of_regions
from fusegen.plan.plan import Part, Plan, make_plan
from fusegen.plan.region import Region, Shape
from fusegen.plan.region_specs import region_document, region_spec
from fusegen.plan.regions import Partition
from fusegen.spec.document import Document
from fusegen.spec.model import SpecModel
from fusegen.spec.names import MAX_NAME_LENGTH
from fusegen.spec.validate import merge


@dataclass(frozen=True)
class Composition:
    """What a spec of several regions becomes.

    returned: what forward returns, by the names of values. shapes: of all values that regions make, and of the inputs.
    spatial: how many dimensions of positions these have.
    """

    spec: SpecModel
    parts: tuple[Part, ...]
    returned: tuple[str, ...]
    shapes: Mapping[str, Shape]
    spatial: int = 0
    is_region = False
    """Whether the module is one region, whose package is its own."""

    @property
    def plans(self) -> list[Plan]:
        """Of the regions that have kernels, in order."""
        return [part.plan for part in self.parts if part.plan is not None]

    def with_plans(self, plans: Iterable[Plan]) -> Composition:
        """The same with others in the place of `plans`."""
        others = iter(plans)
        return replace(self, parts=tuple(replace(part, plan=part.plan and next(others)) for part in self.parts))

    @property
    def device(self) -> Device:
        return self.plans[0].device

    @property
    def op_names(self) -> list[str]:
        return [name for plan in self.plans for name in plan.op_names]

    @property
    def has_precisions(self) -> bool:
        """Whether the module can be told how float32 is multiplied: all its products are then its packages'."""
        return any(plan.has_precisions for plan in self.plans) and all(part.plan for part in self.parts)

    @property
    def modes(self) -> list[Mode]:
        return modes_of_regions(self.spec)


Planned = Plan | Composition


def modules(planned: Planned) -> list[Planned]:
    """A module behind those of its regions, each of which has a package with a module of its own."""
    return [planned] if planned.is_region else [*planned.plans, planned]


def compiled(planned: Iterable[Planned]) -> list[Plan]:
    """The plans of all packages that have kernels: of a composition, those of its regions."""
    return [plan for each in planned for plan in each.plans]


def dimensions_of(planned: Planned) -> Dimensions:
    """How many dimensions inputs may have: what all regions with the rows of the first input allow."""
    found = [dimensions(part.plan) for part in planned.parts if part.plan is not None and not part.region.beside]
    bounded = next((each for each in found if each.most is not None), None)
    return bounded or max(found, key=lambda each: each.least, default=Dimensions(1))


def fixed_dimensions_of(planned: Planned) -> dict[str, int]:
    """How many dimensions the inputs have that have one value for all rows, or other rows, and targets: by name."""
    found = {name: count for plan in planned.plans for name, count in fixed_dimensions(plan.chain).items()}
    found |= {name: len(planned.spec.inputs[name]) for plan in planned.plans for name in plan.chain.targets}
    beside = {name for part in planned.parts if part.region.beside for name in part.region.inputs}
    found |= {name: len(shape) for name, shape in planned.spec.inputs.items() if name in beside}
    return {name: found[name] for name in planned.spec.inputs if name in found}


def package_names(planned: Planned) -> list[str]:
    """Of all packages that a spec becomes, the module's own first."""
    return list(dict.fromkeys([planned.spec.name, *(plan.spec.name for plan in planned.plans)]))


def refuse_compositions(planned: Iterable[Planned], what: str, hint: str | None = None) -> list[Plan]:
    """The plans, where none is a composition. what: is not possible with one. hint: what is. Raises SpecError."""
    found, diagnostics = [], []
    for each in planned:
        if not each.is_region:
            message = f"{what} of {each.spec.name}: it has several regions ({_names(each)})"
            diagnostics.append(Diagnostic("FG401", message, hint=hint))
        else:
            found += each.plans
    if diagnostics:
        raise SpecError(diagnostics)
    return found


def _names(planned: Planned) -> str:
    return ", ".join(part.region.name for part in planned.parts)


def compose(spec: SpecModel, document: Document) -> Composition:
    """Plans a validated spec region by region. Raises SpecError with the diagnostics of all of them."""
    partition = Partition(spec, document)
    diagnostics = [*partition.diagnostics, *_refusals(spec, partition.regions, partition.images.spatial, document)]
    if diagnostics:
        raise SpecError(diagnostics)
    regions = deferred(partition.regions, partition.returned, partition.images, partition.claim)
    kernels = [region for region in regions if not _is_called(spec, region, regions)]
    parts, known = [], KnownDtypes(spec)
    for region in regions:
        plan = None
        if diagnostics and any(None in shape for shape in region.inputs.values()):
            continue  # of what an earlier region does not make
        if region in kernels:
            own = region_spec(spec, region, partition.images)
            try:
                plan = make_plan(own, region_document(document, region), known.of(region))
                known.add(region, own, plan.chain)
            except SpecError as error:
                diagnostics = merge(diagnostics, error.diagnostics)
        else:
            known.layer(region)
        parts.append(Part(region, plan))
    diagnostics += _of_rows(spec, parts, document)
    diagnostics = diagnostics or [*_unused(spec, regions, partition.images, document)]
    if diagnostics:
        raise SpecError(diagnostics)
    shapes = {**partition.shapes, **{name: shape for each in regions for name, shape in each.inputs.items()}}
    return Composition(spec, tuple(parts), partition.returned, shapes, partition.images.spatial)


def _of_rows(spec: SpecModel, parts: Sequence[Part], document: Document) -> Iterator[Diagnostic]:
    """Refuses values without a dimension of the channels where a region would take them."""
    for part in parts:
        if part.plan is not None and part.plan.chain.result.transposed:
            message = "a module of several regions has no result whose rows come behind the channels"
            yield document.diagnostic("FG309", message, ("chain", part.region.places[-1], "op"))
        taken = any(name in each.region.inputs for each in parts for name in part.region.results)
        if part.plan is not None and part.plan.chain.result.drops_channels and taken:
            message = f"a later region takes values with the channels, and '{part.region.name}' ends with [rows]"
            yield document.diagnostic("FG309", message, ("chain", part.region.places[-1], "op"), hint=KEEP)


def _is_called(spec: SpecModel, region: Region, regions: Sequence[Region]) -> bool:
    """Whether PyTorch calls the region's layer. Where every region is a layer, or a product is to be made in another
    precision than IEEE's, packages do."""
    if any(getattr(step, "precision", "ieee") != "ieee" for step in spec.chain):
        return False
    return region.is_layer and not all(each.is_layer for each in regions)


def _refusals(spec: SpecModel, regions: Sequence[Region], spatial: int, document: Document) -> Iterator[Diagnostic]:
    owners: dict[str, int] = {}
    precisions: set[str] = set()
    parameters: set[str | None] = set()
    for index, step in enumerate(spec.chain):
        if step.spatial not in (0, spatial):
            other = next(each.op for each in spec.chain if each.spatial)
            message = f"{step.op} cannot be in a chain with {other}: values have {spatial} dimensions of positions"
            yield document.diagnostic("FG308", message, ("chain", index, "op"))
        if step.in_batches:
            message = f"{step.op} has to be the only layer of a chain without branches"
            yield document.diagnostic("FG308", message, ("chain", index, "op"))
        elif step.anchor and isinstance(getattr(step, "shape", None), str):
            message = "a weight has its sizes here where the chain has several regions"
            hint = f"write them in place of '{step.shape}'"
            yield document.diagnostic("FG308", message, ("chain", index, "shape"), hint=hint)
        if hasattr(step, "precision"):
            precisions.add(step.precision)
            if len(precisions) > 1:
                message = "all linear layers of a module have one precision"
                yield document.diagnostic("FG205", message, ("chain", index, "precision"))
        owned = [step.name] if step.module else []
        parameter = getattr(step, "parameter", None)
        if parameter is not None and step.shape is not None:
            owned.append(parameter)
        elif parameter is not None and parameter not in parameters:
            message = f"parameter '{parameter}' is used here before a step gives its shape"
            yield document.diagnostic("FG301", message, ("chain", index, "parameter"))
        parameters.add(parameter)
        if getattr(step, "constant", None) is not None and getattr(step, "name", None) is not None:
            owned.append(step.name)
        if isinstance(getattr(step, "bias", None), str):
            owned.append(step.bias)
        for name in owned:
            if owners.setdefault(name, index) != index:
                message = f"two steps would own the attribute '{name}'"
                key = next((key for key in ("bias", "parameter") if getattr(step, key, None) == name), "name")
                yield document.diagnostic("FG305", message, ("chain", index, key))
    for region in regions:
        source, shape = next(iter(region.inputs.items()))
        for place, step in zip(region.places, region.steps, strict=True):
            if region.beside and len(shape) > 2 and step.needs_matrix():
                message = f"{step.op} takes inputs of two dimensions, and '{source}' has {len(shape)}"
                yield document.diagnostic("FG308", message, ("chain", place, "op"))
        name = f"{spec.name}_{region.name}"
        if len(name) > MAX_NAME_LENGTH:
            message = f"the package of the region '{region.name}' would have the name '{name}', which is too long"
            yield document.diagnostic("FG206", message, ("name",), hint="give the spec a shorter name")


def _unused(spec: SpecModel, regions: Sequence[Region], images: Images, document: Document) -> Iterator[Diagnostic]:
    """Arguments and symbols that no region has; the rest its own chain notes."""
    specs = [region_spec(spec, region, images) for region in regions]
    arguments = {name for each in specs for name in each.arguments}
    symbols: set[Dim] = {name for each in specs for name in each.dims}
    for name, argument in spec.arguments.items():
        if name not in arguments:
            message = f"nothing uses the argument '{name}'"
            yield document.diagnostic("FG306", message, ("arguments", name), key=True)
        elif argument.type == "shape":
            symbols |= set(argument.is_)
    for name in spec.dims:
        if name not in symbols and name not in spec.arguments:
            yield document.diagnostic("FG210", f"nothing uses the symbol '{name}'", ("dims", name), key=True)
