"""A module of several regions as a subject: the whole of it beside the original. Its regions are subjects, too."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fusegen.chain.model import Chain
from fusegen.ir.axes import dividend
from fusegen.ir.multiples import factors, value_of
from fusegen.plan.composition import Composition
from fusegen.plan.model import Mode
from fusegen.plan.plan import Plan
from fusegen.verify import behaviour, execution, leading, memory, operators
from fusegen.verify.findings import Finding, Report
from fusegen.verify.joined import of_several_widths
from fusegen.verify.sizes import LARGE, SMALL, Shape, Sizes, leading_sizes
from fusegen.verify.subject import Subject
from fusegen.verify.suite import BEHAVIOUR_SIZE, MEMORY_SIZE, STEPS, Check, Suite

_BEHAVIOUR: dict[str, Check] = {
    "bitwise": behaviour.repeated,
    "inputs untouched": behaviour.inputs_untouched,
    "strides": behaviour.strides,
    "frozen parameters": behaviour.frozen,
    "other stream": execution.other_stream,
    "CUDA graph": execution.cuda_graph,
    "opcheck": operators.opcheck,
    "memory": memory.footprint,
    "torch.compile": execution.compiled,
}


def composed_sizes(composition: Composition, rows: int, source: int, channels: int, groups: int) -> Sizes:
    """The nearest sizes that the spec allows: all widths behind anchors are alike, and groups divide them."""
    spec = composition.spec
    given = next(iter(spec.inputs.values()))
    leading = given[:-1] if len(given) > 2 else ()
    symbols: dict[str, int] = {}
    counts = [count for plan in composition.plans for count in plan.chain.group_counts]
    blocks = [parts[1] for parts in map(dividend, counts) if parts is not None]
    multiple = math.lcm(*(count for count in (*counts, *blocks) if isinstance(count, int)))
    channels = max(1, channels // multiple) * multiple

    def settle(dim: Any, value: int) -> int:
        number, name = factors(dim)
        return number if name is None else number * symbols.setdefault(name, max(1, value // number))

    if leading:
        leading_sizes(leading, rows, symbols)
    else:
        settle(given[0], rows)
    settle(given[-1], source if counts == [] else channels)
    for part in composition.parts:
        channels_here = settle(part.region.channels[1], channels)
        for count in part.plan.chain.group_counts if part.plan else ():
            _, count = dividend(count) or (None, count)  # of blocks their width: any divisor, as a number of groups
            if isinstance(count, str):
                symbols[count] = math.gcd(symbols.get(count, groups), channels_here)
    for name, argument in spec.arguments.items():
        if argument.type == "int":
            symbols.setdefault(name, argument.typical)
    for name, value in spec.dims.items():
        symbols.setdefault(name, value)
    return sizes_of_composition(composition, symbols)


def sizes_of_composition(composition: Composition, symbols: Mapping[str, int]) -> Sizes:
    """The sizes that the values of all symbols give. Results count as one, beside each other."""
    given = tuple(value_of(dim, symbols) for dim in next(iter(composition.spec.inputs.values())))
    widths = {name: part.region.width(name) for part in composition.parts for name in part.region.results}
    result = sum(value_of(widths[name], symbols) for name in composition.returned)
    *rows, source = given
    return Sizes(symbols, math.prod(rows), result, source, *((given, (*rows, result)) if len(rows) > 1 else ()))


def composed_modes(composition: Composition) -> list[Mode]:
    """Plain modes, then those under autocast, with every input in float32."""
    spec = composition.spec

    def mode(index: int, dtype: str, autocast: bool) -> Mode:
        other = "float32" if autocast else dtype
        name = f"autocast {dtype}" if autocast else dtype
        return Mode(index, name, {"activation": dtype, "parameter": other}, autocast, plain=not autocast)

    found = [(dtype, False) for dtype in spec.dtypes]
    if "float32" in spec.dtypes:
        found += [(dtype, True) for dtype in spec.dtypes if dtype != "float32"]
    return [mode(index, *each) for index, each in enumerate(found)]


@dataclass(frozen=True)
class ComposedSubject(Subject):
    """A generated module of several regions. plan: the composition."""

    plan: Composition  # type: ignore[assignment]

    def of_region(self, plan: Plan) -> Subject:
        name = plan.spec.name.removeprefix(f"{self.plan.spec.name}_")
        package = sys.modules[getattr(self.package, f"_region_{name}").__module__]
        return Subject(plan, package, self.device)

    @property
    def original_class(self) -> Callable[..., nn.Module]:
        """As of one chain; of a user's class one that says that its parameters meet values of several widths."""
        found = super().original_class
        return of_several_widths(found) if isinstance(self.original, type) else found

    def _chains(self) -> list[Chain]:
        return [plan.chain for plan in self.plan.plans]

    def _inputs(self, sizes: Sizes, mode: Mode) -> list[tuple[tuple[int, ...], torch.dtype]]:
        dtype = getattr(torch, mode.roles["parameter"])
        masks = {name for chain in self._chains() for name in chain.masks}
        targets = {name for chain in self._chains() for name in chain.targets}
        return [
            (tuple(map(sizes.number, shape)), torch.bool if name in masks else dtype)
            for name, shape in self.plan.spec.inputs.items()
            if name not in targets
        ]


@dataclass
class ComposedSuite(Suite):
    """The checks of a module of several regions. What is of a program, a launcher or a size is checked of regions."""

    subject: ComposedSubject

    def report(self) -> Report:
        began = time.perf_counter()
        report = Report(self.subject.plan.spec.name)
        report.findings.extend(self.run())
        report.sizes = self.sizes
        made = {finding.check for finding in report.findings}
        if self.subject.device != "cuda":
            report.skipped |= {check: "needs a GPU" for check in _BEHAVIOUR if check not in made}
        self._skip_autocast(report)
        report.seconds = time.perf_counter() - began
        return report

    def _checks(self) -> Iterator[Finding]:
        yield from self._one("construction", self._size(), None, "", self.subject.same_initial_values, self._size())
        for mode in self.modes():
            yield from self.numerics(mode)
        for mode in self._representatives():
            for name, check in _BEHAVIOUR.items():
                size = self._size(MEMORY_SIZE if name == "memory" else BEHAVIOUR_SIZE)
                yield from self._one(name, size, mode, "", self._behaviour, check, size, mode)
            if len(next(iter(self.subject.plan.spec.inputs.values()))) == 2:  # else the spec says how many there are
                yield from self._one("leading dimensions", self._size(), mode, "", self._leading, self._size(), mode)
            yield from self._one("training", self._size(), mode, f"{STEPS} steps", self._steps, self._size(), mode)
        yield from self._splits()

    def numerics(self, mode: Mode, shapes: Sequence[Shape] | None = None) -> Iterator[Finding]:
        if mode.autocast and self._without_autocast():
            return
        for shape in shapes or self._shapes():
            for train in (True, False):
                size = composed_sizes(self.subject.plan, *shape)
                yield from self._numerics_at(size, mode, mode.autocast, train, "ieee")

    def _splits(self) -> Iterator[Finding]:
        """In float32, products by pieces, where the module can make them so."""
        mode = next((mode for mode in self.modes() if mode.name == "float32"), None)
        if mode is None or not self.subject.plan.has_precisions:
            return
        for train in (True, False):
            yield from self._numerics_at(self._size(), mode, False, train, "fp32_split")

    def _shapes(self) -> tuple[Shape, ...]:
        return (*SMALL, *LARGE[:6]) if self.full else SMALL[:4]

    def _leading(self, size: Sizes, mode: Mode) -> list[Any]:
        allowed = self.subject.plan.dimensions()
        return leading.leading_dimensions(*self._pair("leading", size, mode), free_rows=allowed.most is None)

    def _size(self, shape: tuple[int, int, int, int] = BEHAVIOUR_SIZE) -> Sizes:
        return composed_sizes(self.subject.plan, *(shape if self.full else SMALL[0]))

    def modes(self) -> list[Mode]:
        return composed_modes(self.subject.plan)
