"""Regions that are not their chain are an internal error: faults are planted where regions are made and called.

Each must be found, with the region and the step that takes another value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from fusegen.errors import InternalError
from fusegen.ops.step import Step
from fusegen.plan import load
from fusegen.plan.modules import plan_module
from fusegen.plan.regions.region import Region
from fusegen.spec.yaml import parse_yaml

HEAD = """\
fusegen: 1
name: demo
dims: {batch: 16, width: 32}
arguments: {width: {type: dim}}
inputs: {x: [batch, width]}
dtypes: [float32]
chain:
"""
GATED = """\
  - {op: linear, name: gate, out_features: width}
  - {op: softmax, save: opened}
  - {op: linear, from: x, name: up, out_features: width}
  - {op: silu}
  - {op: sub, value: opened, save: inner}
  - {op: softplus, save: other}
  - {op: linear, name: down, out_features: width}
  - {op: div, input: x}
outputs: [result, inner, other]
"""
DEFERRED = """\
  - {op: linear, name: gate, out_features: width}
  - {op: silu, save: opened}
  - {op: linear, from: x, name: up, out_features: width}
  - {op: tanh}
  - {op: div, value: opened}
  - {op: linear, name: down, out_features: width}
"""
EXCHANGED = """\
  - {op: tanh, save: v}
  - {op: mean, keepdim: true}
  - {op: relu}
  - {op: softmax}
  - {op: sub, value: v}
  - {op: softmax}
"""
PARTS = """\
  - {op: mul, parameter: scale, shape: [width], init: ones}
  - {op: linear, name: a, out_features: 2 * width}
  - {op: chunk, parts: [p, q]}
  - {op: sub, value: q}
  - {op: mul, parameter: scale}
"""


def planned(chain: str):
    return load.planned_document(parse_yaml(HEAD + chain, "demo.yaml"))


def with_step(region: Region, index: int, **update) -> Region:
    steps: list[Step] = [*region.steps]
    steps[index] = steps[index].model_copy(update=update)
    return replace(region, steps=tuple(steps))


def without(steps: tuple, index: int) -> tuple:
    return steps[:index] + steps[index + 1 :]


def taking(region: Region, **others: str) -> Region:
    """With values of other regions in the place of its inputs."""
    return replace(region, inputs={others.get(name, name): shape for name, shape in region.inputs.items()})


Fault = Callable[[dict[str, Region]], dict[str, Region]]
# In the call of a package, whatever is in that: the chain, the regions with a fault, and what is said of that.
CALLS: dict[str, tuple[str, Fault, str]] = {
    "two inputs swapped": (
        GATED,
        lambda r: {"up": replace(r["up"], inputs=dict(reversed(r["up"].inputs.items())))},
        "'up' has another running in its linear, step 3 of the chain",
    ),
    "a running value of another region": (
        GATED,
        lambda r: {"down": taking(r["down"], other="opened")},
        "'down' has another running in its linear, step 7 of the chain",
    ),
    "an operand of another region": (
        GATED,
        lambda r: {"down": taking(r["down"], x="opened")},
        "'down' has another value in its div, step 8 of the chain",
    ),
    "another result of the same region": (
        GATED,
        lambda r: {"down": taking(r["down"], other="inner")},
        "'down' has another running in its linear, step 7 of the chain",
    ),
    "not yet made": (
        GATED,
        lambda r: {"up": taking(r["up"], opened="down_result")},
        "'up' takes 'down_result', which nothing in front of it makes",
    ),
    "results swapped": (
        GATED,
        lambda r: {"up": replace(r["up"], results=r["up"].results[::-1])},
        "'up' gives another value for '(inner|other)'",
    ),
}
# In a package.
PACKAGES: dict[str, tuple[str, Fault, str]] = {
    "a step lost": (
        GATED,
        lambda r: {"up": replace(r["up"], steps=without(r["up"].steps, 1), places=without(r["up"].places, 1))},
        "'up' has another running in its sub, step 5 of the chain",
    ),
    "a moved tail goes on": (
        DEFERRED,
        lambda r: {"up": with_step(r["up"], 3, from_="opened", value="up_running")},
        "'up' has another running and value in its div, step 5 of the chain",
    ),
    "operands swapped": (
        GATED,
        lambda r: {"up": with_step(r["up"], 2, swap=True)},
        "'up' has another running and value in its sub, step 5 of the chain",
    ),
    "parts swapped": (
        PARTS,
        lambda r: {"a": with_step(r["a"], 1, parts=("q", "p"))},
        "'a' has another value in its sub, step 4 of the chain",
    ),
    "another parameter": (
        PARTS,
        lambda r: {"a": with_step(r["a"], 3, init="zeros")},
        "'a' has another key in its mul, step 5 of the chain",
    ),
}


def faulty(fault: Fault, given: Iterable[Region]) -> tuple[Region, ...]:
    regions = {region.name: region for region in given}
    return tuple((regions | fault(regions)).values())


@pytest.mark.parametrize("fault", CALLS)
def test_calls_of_other_values(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chain, change, said = CALLS[fault]
    made = planned(chain)
    regions = faulty(change, made.regions)
    monkeypatch.setattr(load, "plan_module", lambda *_: replace(made, regions=regions))
    with pytest.raises(InternalError, match=f"^the regions of demo are not its chain: region {said}$"):
        planned(chain)


@pytest.mark.parametrize("fault", PACKAGES)
def test_packages_of_another_chain(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chain, change, said = PACKAGES[fault]
    planned(chain)
    deferred = plan_module.deferred
    monkeypatch.setattr(plan_module, "deferred", lambda *given: faulty(change, deferred(*given)))
    with pytest.raises(InternalError, match=f"^the regions of demo are not its chain: region {said}$"):
        planned(chain)


def test_outputs_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    returned = plan_module.Partition._returned
    monkeypatch.setattr(plan_module.Partition, "_returned", lambda self: returned(self)[::-1])
    with pytest.raises(InternalError, match="what is returned as 'result' is 'other', another value"):
        planned(GATED)


def test_outputs_of_a_package_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan_module.region_spec

    def region_spec(*given):
        spec = made(*given)
        return spec.model_copy(update={"outputs": spec.outputs and spec.outputs[::-1]})

    monkeypatch.setattr(plan_module, "region_spec", region_spec)
    with pytest.raises(InternalError, match="region 'up' gives another value for 'inner'"):
        planned(GATED)


def test_operands_that_are_not_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step whose operand begins the region has its operands the other way round."""
    planned(EXCHANGED)
    exchanged = plan_module.Partition._exchanged

    def unlike(self, step: Step, running: str) -> tuple[str, Step]:
        name, found = exchanged(self, step, running)
        return name, found.model_copy(update={"swap": False})

    monkeypatch.setattr(plan_module.Partition, "_exchanged", unlike)
    with pytest.raises(InternalError, match="has another running and value in its sub, step 5 of the chain"):
        planned(EXCHANGED)


def test_a_step_in_two_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch norm would count its batches twice."""
    made = planned(GATED)
    again = replace(made.regions[0], name="again", results=("again_result",))
    monkeypatch.setattr(load, "plan_module", lambda *_: replace(made, regions=(*made.regions, again)))
    with pytest.raises(InternalError, match="a step is in no region, or in two"):
        planned(GATED)
