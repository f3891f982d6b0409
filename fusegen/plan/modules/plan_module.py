"""Plans a spec: as one region, or cut into several that are planned one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from fusegen.chain.build import examine_chain, examine_numbers
from fusegen.chain.operands import KEEP
from fusegen.errors import Diagnostic, SpecError
from fusegen.ir.axes import Dim
from fusegen.ir.multiples import factors
from fusegen.plan.modules.module import ModulePlan, PlannedRegion, module_of
from fusegen.plan.modules.plan import make_plan
from fusegen.plan.modules.refusals import all_called
from fusegen.plan.modules.row_invariance import called_layers
from fusegen.plan.regions.autocast import KnownDtypes
from fusegen.plan.regions.deferring import deferred
from fusegen.plan.regions.partition import Partition
from fusegen.plan.regions.region import Region, is_single
from fusegen.plan.regions.region_specs import region_document, region_spec
from fusegen.spec.document import Document
from fusegen.spec.model import SpecModel
from fusegen.spec.validate import merge


def plan_module(spec: SpecModel, document: Document) -> ModulePlan:
    """The plan of a validated spec. Raises SpecError with the diagnostics of all regions."""
    if is_single(spec):
        return module_of(make_plan(spec, document))
    partition = Partition(spec, document)
    diagnostics = [*partition.diagnostics, *_refusals(spec, partition.regions, document)]
    if diagnostics:
        raise SpecError(diagnostics)
    regions = deferred(partition.regions, partition.returned, partition.images, partition.claim)
    planned, known, specs = [], KnownDtypes(spec), []
    lacking: set[str] = set()
    for region in regions:
        plan = None
        if (diagnostics and any(None in shape for shape in region.inputs.values())) or lacking & {*region.inputs}:
            lacking.update(region.results)
            continue  # of what an earlier region does not make
        own = region_spec(spec, region, partition.images)
        specs.append(own)
        if _is_called(spec, region, regions):
            known.layer(region)
            diagnostics = merge(diagnostics, _of_called(own, region_document(document, region)))
            lacking.update(region.results if region.steps[0].drops_channels else ())
        else:
            try:
                plan = make_plan(own, region_document(document, region), known.of(region))
                known.add(region, own, plan.chain)
            except SpecError as error:
                diagnostics = merge(diagnostics, error.diagnostics)
        planned.append(PlannedRegion(**vars(region), plan=plan))
    diagnostics += _of_rows(planned, {name for region in regions for name in region.inputs}, document)
    diagnostics = diagnostics or [*_unused(spec, specs, regions, document)]
    if diagnostics:
        raise SpecError(diagnostics)
    shapes = {**partition.shapes, **{name: shape for each in regions for name, shape in each.inputs.items()}}
    return ModulePlan(spec, tuple(planned), partition.returned, shapes, partition.images.spatial)


def _of_called(spec: SpecModel, document: Document) -> list[Diagnostic]:
    """What is wrong with a layer that PyTorch calls. spec, document: of its region."""
    return examine_chain(spec, document, training=True)[1] or examine_numbers(spec, document)


def _of_rows(regions: Sequence[PlannedRegion], taken: AbstractSet[str], document: Document) -> Iterator[Diagnostic]:
    """Refuses values without a dimension of the channels where a region would take them. taken: what regions take."""
    for region in regions:
        if region.plan is not None and region.plan.chain.result.transposed:
            message = "a module of several regions has no result whose rows come behind the channels"
            yield document.diagnostic("FG309", message, ("chain", region.places[-1], "op"))
        if taken.isdisjoint(region.results):
            continue
        if region.frame is not None:  # what its kernels' rows drop is a dimension of positions
            continue
        if region.plan is not None and region.plan.chain.result.drops_channels:
            ends = "with [rows]"
        elif region.is_called and region.steps[0].drops_channels:
            ends = "without these"
        else:
            continue
        message = f"a later region takes values with the channels, and '{region.name}' ends {ends}"
        yield document.diagnostic("FG309", message, ("chain", region.places[-1], "op"), hint=KEEP)


def _is_called(spec: SpecModel, region: Region, regions: Sequence[Region]) -> bool:
    """Whether PyTorch calls the region's layer. Where every region is a layer, or a product is to be made in another
    precision than IEEE's or for each row alike, packages do, but for what no kernel has."""
    if region.is_called:
        return True
    if spec.invariant or any(getattr(step, "precision", "ieee") != "ieee" for step in spec.chain):
        return False
    return region.is_layer and not all(each.is_layer for each in regions)


def _refusals(spec: SpecModel, regions: Sequence[Region], document: Document) -> Iterator[Diagnostic]:
    owners: dict[str, int] = {}
    precisions: set[str] = set()
    parameters: set[str | None] = set()
    yield from all_called(spec, document)
    yield from called_layers(spec, regions, document)
    for index, step in enumerate(spec.chain):
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
        owned += [getattr(step, key) for key in ("bias", "buffer") if isinstance(getattr(step, key, None), str)]
        for name in owned:
            if owners.setdefault(name, index) != index:
                message = f"two steps would own the attribute '{name}'"
                key = next((key for key in ("bias", "buffer", "parameter") if getattr(step, key, None) == name), "name")
                yield document.diagnostic("FG305", message, ("chain", index, key))
    for region in regions:
        source, shape = next(iter(region.inputs.items()))
        for place, step in zip(region.places, region.steps, strict=True):
            if not step.is_of(region.spatial):
                takes, has = (count or "no" for count in (step.spatial, region.spatial))
                message = f"{step.op} takes {takes} dimensions of positions, and '{source}' has {has}"
                yield document.diagnostic("FG308", message, ("chain", place, "op"))
            if region.is_broadcast and len(shape) > 2 and step.needs_matrix():
                message = f"{step.op} takes inputs of two dimensions, and '{source}' has {len(shape)}"
                yield document.diagnostic("FG308", message, ("chain", place, "op"))


def _unused(
    spec: SpecModel, specs: Sequence[SpecModel], regions: Sequence[Region], document: Document
) -> Iterator[Diagnostic]:
    """Arguments and symbols that none of the regions has; the rest a region's own chain notes."""
    given = [dim for region in regions for shape in region.inputs.values() for dim in shape]
    seen = {name for _, name in map(factors, given) if name is not None}
    arguments = {name for each in specs for name in each.arguments} | seen
    symbols: set[Dim] = {*seen, *(name for each in specs for name in each.dims)}
    for name, argument in spec.arguments.items():
        if name not in arguments:
            message = f"nothing uses the argument '{name}'"
            yield document.diagnostic("FG306", message, ("arguments", name), key=True)
        elif argument.type == "shape":
            symbols |= set(argument.is_)
    for name in spec.dims:
        if name not in symbols and name not in spec.arguments:
            yield document.diagnostic("FG210", f"nothing uses the symbol '{name}'", ("dims", name), key=True)
