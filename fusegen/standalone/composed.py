"""The forward method of a standalone module of several regions: each in turn, on values [rows, channels].

Names are as in call.py. What PyTorch calls is a layer of the file's own classes: the product, and no module of torch's.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusegen.plan.composition import Composition, Part
from fusegen.render.functions import as_tuple
from fusegen.standalone.call import Call
from fusegen.standalone.drops import SAMPLES, Drops
from fusegen.standalone.named import NamedPlan
from fusegen.standalone.views import check_and_view, rows_of_samples, viewed_back


@dataclass(frozen=True)
class MethodText:
    """What runs a region."""

    name: str
    about: str
    inputs: list[str]
    body: list[str]


def methods(composition: Composition) -> list[MethodText]:
    """One for each region that has kernels."""
    found = []
    for part in composition.parts:
        if part.plan is not None:
            named, ops = NamedPlan(part.plan, part.region.name), ", ".join(step.op for step in part.region.steps)
            found.append(MethodText(named.method, f"{ops}.", _given(part, SAMPLES), Call(named).body()))
    return found


def composed_body(composition: Composition) -> list[str]:
    """The body of `forward`."""
    allowed, fixed = composition.dimensions(), composition.fixed_dimensions()
    first, *others = composition.spec.inputs
    lines = check_and_view(allowed, first, [name for name in others if name not in fixed])
    lines += [_call(part, rows_of_samples(allowed)) for part in composition.parts]
    plans = [part for part in composition.parts if part.plan is not None and part.plan.chain.drops_channels]
    drops = {part.region.results[-1] for part in plans}
    results = [f"{name}{viewed_back(allowed, name in drops)}" for name in composition.returned]
    return [*lines, f"return {results[0] if composition.spec.outputs is None else as_tuple(results)}"]


def _given(part: Part, samples: str) -> list[str]:
    """What a region is given. samples: how many rows a sample has, for dropouts that draw for each."""
    by_sample = part.plan is not None and Drops(part.plan.chain).by_sample
    return [*part.region.inputs, *([samples] if by_sample else [])]


def _call(part: Part, samples: str) -> str:
    made, given = ", ".join(part.region.results), ", ".join(_given(part, samples))
    if part.plan is None:
        return f"{made} = self.{part.region.steps[0].name}({given})"
    return f"{made} = self.{NamedPlan(part.plan, part.region.name).method}({given})"
