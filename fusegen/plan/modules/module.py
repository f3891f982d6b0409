"""The plan of a module: its regions, each with the plan of its package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fusegen.ir.axes import Dim
from fusegen.plan.modules.dimensions import Dimensions, dimensions, fixed_dimensions
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Mode
from fusegen.plan.programs.modes import modes_of_regions
from fusegen.plan.regions.region import Region, Shape
from fusegen.spec.model import RESULT, SpecModel


@dataclass(frozen=True)
class PlannedRegion(Region):
    """plan: of the package that has its kernels; None for a layer that PyTorch calls."""

    plan: Plan | None = field(kw_only=True)

    @property
    def group_counts(self) -> list[Dim]:
        """Of its norms, into how many groups these divide the channels."""
        if self.plan is not None:
            return [*self.plan.chain.group_counts]
        return [step.num_groups for step in self.steps if hasattr(step, "num_groups")]


@dataclass(frozen=True)
class ModulePlan:
    """What a spec becomes: one region, whose package is the module's own, or several with packages of their own.

    returned: what forward returns, by the names of values. shapes: of the inputs, and of all values that several
    regions make. spatial: how many dimensions of positions the first input has.
    """

    spec: SpecModel
    regions: tuple[PlannedRegion, ...]
    returned: tuple[str, ...]
    shapes: Mapping[str, Shape]
    spatial: int = 0

    @property
    def single(self) -> Plan | None:
        """The plan of the only region, if that sees values as the module does; None of several."""
        return self.regions[0].plan if len(self.regions) == 1 and self.regions[0].frame is None else None

    @property
    def plans(self) -> list[Plan]:
        """Of the regions that have kernels, in order."""
        return [region.plan for region in self.regions if region.plan is not None]

    def with_plans(self, plans: Iterable[Plan]) -> ModulePlan:
        """The same with others in the place of `plans`."""
        others = iter(plans)
        return replace(self, regions=tuple(replace(each, plan=each.plan and next(others)) for each in self.regions))

    @property
    def modules(self) -> list[ModulePlan]:
        """This one behind those of its regions, each of which has a package with a module of its own."""
        return [self] if self.single else [*map(module_of, self.plans), self]

    @property
    def package_names(self) -> list[str]:
        """Of all packages that the spec becomes, the module's own first."""
        return list(dict.fromkeys([self.spec.name, *(plan.spec.name for plan in self.plans)]))

    @property
    def op_names(self) -> list[str]:
        return [name for plan in self.plans for name in plan.op_names]

    @property
    def has_images(self) -> bool:
        """Whether values have dimensions of positions: those of the first input, or some that a step made of rows."""
        return any(region.spatial for region in self.regions)

    @property
    def has_precisions(self) -> bool:
        """Whether the module can be told how float32 is multiplied: all its products are then its packages'."""
        return any(plan.has_precisions for plan in self.plans) and all(region.plan for region in self.regions)

    @property
    def modes(self) -> Sequence[Mode]:
        return self.single.modes if self.single else modes_of_regions(self.spec)

    @property
    def dimensions(self) -> Dimensions:
        """How many dimensions inputs may have: what all regions with the rows of the first input allow."""
        count = len(self.spec.inputs[self.spec.running_input])
        for region in self.regions:
            fixed = [step for step in region.steps if step.needs_batch(region.spatial)]
            if fixed:
                return Dimensions(count, count, f"{fixed[0].op} takes no others", self.spatial)
        found = [
            dimensions(region.plan) for region in self.regions if region.plan is not None and not region.is_broadcast
        ]
        bounded = next((each for each in found if each.most is not None), None)
        return bounded or max(found, key=lambda each: each.least, default=Dimensions(1))

    @property
    def fixed_dimensions(self) -> dict[str, int]:
        """How many dimensions the inputs have that have one value for all rows, or other rows, and targets: by name."""
        inputs, plans = self.spec.inputs, self.plans
        found = {name: count for plan in plans for name, count in fixed_dimensions(plan.chain).items()}
        own = {name for plan in plans for name in plan.chain.targets}
        beside = [each for each in self.regions if each.is_broadcast or each.spatial != self.spatial]
        own |= {name for region in beside for name in region.inputs}
        found |= {name: len(inputs[name]) for name in own if name in inputs}
        return {name: found[name] for name in inputs if name in found}


def module_of(plan: Plan) -> ModulePlan:
    """The module that is one region."""
    spec, chain = plan.spec, plan.chain
    channels = spec.inputs[spec.running_input][1 if chain.spatial else -1], chain.channels
    places, results = tuple(range(len(spec.chain))), spec.outputs or (RESULT,)
    inputs = dict(spec.inputs)
    region = PlannedRegion(spec.name, places, spec.chain, inputs, results, channels, spatial=chain.spatial, plan=plan)
    return ModulePlan(spec, (region,), results, spec.inputs, chain.spatial)


def compiled(planned: Iterable[ModulePlan]) -> list[Plan]:
    """The plans of all packages that have kernels."""
    return [plan for each in planned for plan in each.plans]
