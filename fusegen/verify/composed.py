"""A module of several regions as a subject: the whole of it beside the original. Its regions are subjects, too."""

from __future__ import annotations

import functools
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
from fusegen.ops.reductions import OverChannels
from fusegen.plan.composition import Composition
from fusegen.plan.epilogue import SPLIT
from fusegen.plan.model import Mode
from fusegen.plan.plan import Plan
from fusegen.verify import behaviour, execution, formats, leading, memory, operators, precisions
from fusegen.verify.capacity import Bytes, comparison_bytes, training_bytes, why_too_large
from fusegen.verify.composed_positions import symbols_of_images, with_positions
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
    if composition.spatial:
        return sizes_of_composition(composition, symbols_of_images(composition, rows, source, channels, groups))
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
    """The sizes that the values of all symbols give. Results count as one, beside each other. Raises ValueError where
    those of images do not fit together."""
    if composition.spatial:
        symbols = with_positions(composition, symbols)
    given = tuple(value_of(dim, symbols) for dim in next(iter(composition.spec.inputs.values())))
    widths = {name: part.region.width(name) for part in composition.parts for name in part.region.results}
    result = sum(value_of(widths[name], symbols) for name in composition.returned)
    if composition.spatial:
        batch, source, *positions = given
        return Sizes(symbols, math.prod((batch, *positions)), result, source, given, (batch, result, *positions))
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
        return of_several_widths(found) if isinstance(self.original, type) and isinstance(found, type) else found

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
        size = self._size()
        yield from self._one("construction", size, None, "", self.subject.same_initial_values, size)
        for mode in self.modes():
            yield from self.numerics(mode)
        for mode in self._representatives():
            for name, check in _BEHAVIOUR.items():
                wanted = self._size(MEMORY_SIZE if name == "memory" else BEHAVIOUR_SIZE)
                for each in self._fitting(name, [wanted], mode):
                    yield from self._one(name, each, mode, "", self._behaviour, check, each, mode)
            yield from self._forms(size, mode)
            for each in self._fitting("training", [size], mode, training_bytes):
                yield from self._one("training", each, mode, f"{STEPS} steps", self._steps, each, mode)
        yield from self._splits()

    def _forms(self, size: Sizes, mode: Mode) -> Iterator[Finding]:
        """Inputs with other dimensions, unless the spec says how many there are; of images, in other memory formats."""
        if len(next(iter(self.subject.plan.spec.inputs.values()))) == 2:
            for each in self._fitting("leading dimensions", [size], mode):
                yield from self._one("leading dimensions", each, mode, "", self._leading, each, mode)
        if self.subject.plan.spatial:
            for each in self._fitting("memory formats", [size], mode):
                kept = any(isinstance(step, OverChannels) for step in self.subject.plan.spec.chain)
                check = formats.memory_formats_kept if kept else formats.memory_formats
                work = functools.partial(self._behaviour, check)
                yield from self._one("memory formats", each, mode, "", work, each, mode)

    def numerics(self, mode: Mode, shapes: Sequence[Shape] | None = None) -> Iterator[Finding]:
        if mode.autocast and self._without_autocast():
            return
        chosen = [composed_sizes(self.subject.plan, *shape) for shape in shapes or self._shapes()]
        for size in self._fitting("numerics", chosen, mode):
            for train in (True, False):
                yield from self._numerics_at(size, mode, mode.autocast, train, precisions.IEEE)

    def _splits(self) -> Iterator[Finding]:
        """In float32, products by pieces, where the module can make them so."""
        mode = next((mode for mode in self.modes() if mode.name == "float32"), None)
        if mode is None or not self.subject.plan.has_precisions:
            return
        for size in self._fitting(f"numerics {SPLIT}", [self._size()], mode):
            for train in (True, False):
                yield from self._numerics_at(size, mode, False, train, SPLIT)

    def _fitting(
        self, check: str, chosen: Sequence[Sizes], mode: Mode, bytes_: Bytes = comparison_bytes
    ) -> list[Sizes]:
        """The sizes, each once, but for those that libraries do not take or for which the device has not the memory;
        `self.sizes` says so. What kernels run at these is checked of regions."""
        found: list[Sizes] = []
        for size in chosen:
            reason = why_too_large(self.subject.plan, mode, size, bytes_, self._capacity())
            if reason:
                self.sizes[f"{check} {size} {mode.name}"] = f"{reason}: left out"
            elif size not in found:
                found.append(size)
        return found

    def _shapes(self) -> tuple[Shape, ...]:
        return (*SMALL, *LARGE[:6]) if self.full else SMALL[:4]

    def _leading(self, size: Sizes, mode: Mode) -> list[Any]:
        allowed = self.subject.plan.dimensions()
        return leading.leading_dimensions(*self._pair("leading", size, mode), free_rows=allowed.most is None)

    def _size(self, shape: tuple[int, int, int, int] = BEHAVIOUR_SIZE) -> Sizes:
        return composed_sizes(self.subject.plan, *(shape if self.full else SMALL[0]))

    def modes(self) -> list[Mode]:
        return composed_modes(self.subject.plan)
