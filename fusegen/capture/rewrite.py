"""A graph with its regions as calls of packages."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import fx

from fusegen.aten.nodes import operator_of, value_of
from fusegen.capture.call import Call, call_of
from fusegen.capture.chain import Chain, NotAChain, name_of
from fusegen.capture.kept import kept
from fusegen.capture.linear_losses import Chunk, linear_loss_chain, linear_losses, write_linear_losses
from fusegen.capture.losses import TOO_SMALL, is_large, loss_chain, losses
from fusegen.capture.lower import NotLowered, bodies
from fusegen.capture.measure import Measurements, NotMeasured, Times
from fusegen.capture.packages import Packages, planned_target
from fusegen.capture.partition import Region, partition
from fusegen.capture.products import NOT_WORTH, Precision, is_worth, product_chain, products, write_products
from fusegen.capture.report import Left, Report, Taken
from fusegen.capture.specs import Specs
from fusegen.capture.steps import chain_of
from fusegen.capture.unsupported import unsupported
from fusegen.capture.worth import NO_GRADIENT, Around, Choose, is_overruled, obstacle
from fusegen.importing.traces.source_locations import of_trace


@dataclass(frozen=True)
class Wanted:
    """What the user asks for: which chains, how float32 is multiplied, how many rows of logits are in memory at a time,
    and the options of Inductor; None where it has not the rest."""

    choose: Choose = "faster"
    precision: Precision = "ieee"
    chunk: Chunk = None
    inductor: Mapping[str, Any] | None = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """A region that is a chain. owner: the module of its graph. trained: what with_gradients() returns for that."""

    region: Region
    chain: Chain
    owner: fx.GraphModule
    trained: set[fx.Node]


@dataclass(frozen=True)
class Placed:
    """A chain that has a spec. at_place: the text of that with the sizes of this place; None where these change."""

    found: Found
    spec: str
    at_place: str | None


def chains_in(module: fx.GraphModule, report: Report, wanted: Wanted) -> list[Found]:
    """The regions of a graph and of those within it that are worth a package; the report gets the others. Gradients are
    on or off as they are where the graph begins."""
    found: list[Found] = []
    if wanted.precision == "fp32_split":
        write_products(module.graph)
        module.recompile()
    if wanted.chunk is not None:
        write_linear_losses(module.graph)
        module.recompile()
    around = Around.of(module.graph, wanted.inductor)
    refused = dict(unsupported(module.graph))
    report.left += [Left(why, (operator_of(node)[1],), place_of([node])) for node, why in refused.items()]
    inside = {*refused}
    for region, written, why_not in _regions(module.graph, around, wanted):
        inside.update(region.nodes)
        try:
            if why_not is not None and not is_overruled(why_not, wanted.choose):
                raise NotAChain(why_not)
            found.append(Found(region, written(region), module, around.trained))
        except NotAChain as why:
            report.left.append(_left(region, why))
    report.kept.update(kept(module.graph, inside))
    for body in bodies(module):
        found += chains_in(body, report, wanted)
    return found


def _regions(
    graph: fx.Graph, around: Around, wanted: Wanted
) -> Iterator[tuple[Region, Callable[[Region], Chain], str | None]]:
    """All regions, what writes their chains, and why their kernels would not be faster."""
    for region in partition(graph):
        yield region, chain_of, obstacle(region, around)
    divided: set[fx.Node] = set()
    for region in linear_losses(graph) if wanted.chunk is not None else ():
        divided.update(region.nodes)
        why_not = None if any(node in around.trained for node in region.nodes) else NO_GRADIENT
        yield region, partial(linear_loss_chain, chunk=wanted.chunk), why_not
    for region in losses(graph):
        if region.nodes[-1] in divided:
            continue
        yield region, loss_chain, obstacle(region, around) or (None if is_large(region) else TOO_SMALL)
    if wanted.precision == "fp32_split":
        targets = [planned_target()]
        for region in products(graph):
            if region.nodes[0] in divided:
                continue
            yield region, product_chain, None if is_worth(region, around.trained, targets) else NOT_WORTH


def place_in(specs: Specs, found: Iterable[Found], report: Report) -> list[Placed]:
    """The chains that can be planned; the report gets the others."""
    placed: list[Placed] = []
    for each in found:
        dtypes = _dtypes(each)
        try:
            name = specs.place(each.chain, dtypes)
            placed.append(Placed(each, name, specs.at_place(name, each.chain, dtypes)))
        except NotAChain as why:
            report.left.append(_left(each.region, why))
    return placed


def rewrite(
    module: fx.GraphModule, packages: Packages, report: Report, wanted: Wanted, measurements: Measurements
) -> None:
    """Puts calls of packages in the place of regions, and tells the report of each. measurements: asked where it is
    wanted that kernels were measured."""
    found = chains_in(module, report, wanted)
    if not found:
        return
    placed: list[Placed] = []

    def place(specs: Specs) -> Sequence[str]:
        placed.extend(place_in(specs, found, report))
        return [each.spec for each in placed]

    modules = packages.prepare(place)
    replaced: dict[fx.Node, fx.Node] = {}  # of regions before the one at hand, by what is in their place
    for index, one in enumerate(placed):
        each = one.found
        try:
            package = modules[one.spec]
            if isinstance(package, str):
                raise NotAChain(package)
            call, given = call_of(each.region, each.chain, package, one.spec)
            nodes = [replaced.get(node, node) for node in given]
            is_measured = wanted.choose == "measure" and not each.chain.saves_memory
            times = _times(each, call, nodes, measurements) if is_measured else None
        except NotAChain as why:
            report.left.append(_left(each.region, why))
            continue
        each.owner.add_submodule(f"fusegen_{index}", call)
        _put(each.owner.graph, each, f"fusegen_{index}", nodes, replaced)
        report.taken.append(taken(one, times))
    for owner in {each.owner for each in found}:
        _order(owner.graph.nodes)
        owner.graph.lint()
        owner.recompile()


def _times(found: Found, call: Call, nodes: Sequence[fx.Node], measurements: Measurements) -> Times:
    """What was measured. Raises NotAChain where it does not pay."""
    try:
        times = measurements.times(found.region, call, nodes, found.trained)
    except NotMeasured as why:
        raise NotAChain(str(why)) from None
    if not times.pays:
        raise NotAChain(str(times))
    return times


def _put(graph: fx.Graph, found: Found, name: str, nodes: Sequence[fx.Node], replaced: dict[fx.Node, fx.Node]) -> None:
    """Lets a call take the place of the region's nodes. name: of the call. nodes: what the call takes."""
    with graph.inserting_after(found.region.nodes[-1]):
        made = graph.call_module(name, tuple(nodes))
    olds = [node for node, _ in found.chain.results]
    news = [made]
    if len(olds) > 1:
        made.meta["val"] = tuple(node.meta["val"] for node in olds)
        with graph.inserting_after(made):
            news = [graph.call_function(operator.getitem, (made, index)) for index in range(len(olds))]
    for old, new in zip(olds, news, strict=True):
        new.meta = dict(old.meta)
        old.replace_all_uses_with(new)
        replaced[old] = new
        if old in found.trained:
            found.trained.add(new)
    for node in reversed(found.region.nodes):
        graph.erase_node(node)


def _order(nodes: Iterable[fx.Node]) -> None:
    """Moves nodes of a graph behind what they take; the others stay in order."""
    given = list(nodes)
    found: dict[fx.Node, None] = {}
    for node in given:
        waiting = [node]
        while waiting:
            last = waiting[-1]
            more = [each for each in last.all_input_nodes if each not in found]
            waiting += more
            if not more:
                found.setdefault(waiting.pop())
    order = list(found)
    for before, node in zip(order, order[1:], strict=False):
        before.append(node)


def _dtypes(found: Found) -> set[str]:
    """Of the tensors that the region takes and makes."""
    nodes = [*found.chain.tensors.values(), *found.region.results]
    dtypes = {value.dtype for node in nodes if (value := value_of(node)) is not None and value.is_floating_point()}
    return set(map(name_of, dtypes))


def taken(placed: Placed, times: Times | None = None) -> Taken:
    region = placed.found.region
    measured = None if times is None else str(times)
    return Taken(placed.spec, tuple(region.ops), place_of(region.nodes), measured, placed.at_place)


def left_whole(module: fx.GraphModule, why: NotLowered) -> Left:
    return Left(str(why), ("all of a graph",), place_of(module.graph.nodes))


def _left(region: Region, why: NotAChain) -> Left:
    return Left(str(why), tuple(region.ops), place_of(region.nodes))


def place_of(nodes: Iterable[fx.Node]) -> str:
    """The user's line that the first of the nodes is from."""
    for node in nodes:
        place = of_trace(node.meta.get("stack_trace"))
        if place is not None:
            return str(place.location())
    return "an unknown line"
