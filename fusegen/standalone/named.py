"""The plans in a standalone file: that of a chain, or one for each region that has kernels, under names of its own."""

from __future__ import annotations

from dataclasses import dataclass

from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.modules.plan import Plan


@dataclass(frozen=True)
class NamedPlan:
    """region: empty for a chain that is one. The names begin with an underscore, or are in the extension."""

    plan: Plan
    region: str = ""

    @property
    def namespace(self) -> str:
        """Of C++, and of the extension's functions; empty for those at its top."""
        return f"region_{self.region}" if self.region else ""

    @property
    def kernels(self) -> str:
        """Python: what has the functions of the extension."""
        return f"_kernels.{self.namespace}" if self.region else "_kernels"

    @property
    def variable(self) -> str:
        """Python: the class of the region."""
        return f"_{self.namespace}"


def named_plans(planned: ModulePlan) -> list[NamedPlan]:
    """In the order of their calls."""
    kernels = [(region.name, region.plan) for region in planned.regions if region.plan is not None]
    return [NamedPlan(plan, "" if planned.single else name) for name, plan in kernels]
