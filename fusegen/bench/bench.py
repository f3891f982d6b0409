"""Measures configurations one after another: built, checked, warmed up, timed in rounds, written down."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from fusegen.bench.ceilings import Ceilings, matmul_settings
from fusegen.bench.checks import Checks
from fusegen.bench.clock import Clock
from fusegen.bench.names import CONTRACTION, COPY, FUSED, PRECISIONS
from fusegen.bench.options import Options
from fusegen.bench.peers import compiling, is_compiled, make_peer, uses_graphs
from fusegen.bench.regions import bytes_of_regions, has_anchor, mode_of, products_work, why_no_precision
from fusegen.bench.rounds import Measured, measure
from fusegen.bench.rows import Row
from fusegen.bench.schedules import Ran, ran
from fusegen.bench.work import Work, copy_work, gradients, module_work
from fusegen.errors import FusegenError
from fusegen.plan.programs.model import Mode
from fusegen.plan.sizes.chain_sizes import Sizes
from fusegen.verify.runs.concat_outputs import separate_outputs
from fusegen.verify.runs.dropout_replay import own_draws
from fusegen.verify.subjects.subject import Subject
from fusegen.version import __version__

_MESSAGE_LENGTH = 300


@dataclass
class Bench:
    """One run on one device.

    command: what the CSV names as the command of this run. run: when it began. write: takes the rows of a configuration
    as soon as they are there. say: takes a line of progress. backend: another compiler of the peers than Inductor.
    wrong: what the fused module got wrong or raised. problems: peers that were left out, and configurations that a
    spec does not have.
    """

    clock: Clock
    ceilings: Ceilings
    options: Options
    command: str
    run: str
    write: Callable[[list[Row]], None]
    say: Callable[[str], None]
    now: Callable[[], float] = time.monotonic
    backend: str | None = None
    rows: list[Row] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _slowest: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._began = self.now()

    def measure(self, subject: Subject, sizes: Sizes, precision: str) -> None:
        """Every mode of the options for one spec, shape and precision."""
        place = _Place(subject, sizes, precision)
        mode = mode_of(subject.plan.modes, place.dtype)
        if mode is None:
            self.problems.append(f"{place}: the spec has no {place.dtype}")
            return
        if PRECISIONS[precision].product != "ieee" and (why := why_no_precision(subject.plan)):
            self.problems.append(f"{place}: {why}")
            return
        with matmul_settings(PRECISIONS[precision]), compiling(self.options.against):
            try:
                self._configurations(place, mode)
            except FusegenError:
                raise
            except Exception as problem:  # no memory for it, or a shape that the chain's own operators refuse
                self.wrong.append(f"{place}: {_message(problem)}")
                self.say(self.wrong[-1])
        gc.collect()
        if subject.device == "cuda":
            torch.cuda.empty_cache()

    def _configurations(self, place: _Place, mode: Mode) -> None:
        subject, options = place.subject, self.options
        fused, original, inputs = subject.pair(place.sizes, mode, options.seed)
        subject.fix_targets((fused, original), inputs)
        product = PRECISIONS[place.precision].product
        if product != "ieee":
            fused.fusegen_precision = product  # type: ignore[assignment]
            # Nobody writes to the weights while they are measured.
            fused.fusegen_keep_pieces = True  # type: ignore[assignment]
        dtype = getattr(torch, place.dtype)
        checks = Checks(original, inputs, options.modes, dtype, options.seed)
        try:
            mistakes = checks.fused(fused)
        except Exception as problem:  # whatever a module under test may raise
            mistakes = [_message(problem)]
        if mistakes:
            self.wrong.append(f"{place}: not timed, wrong: {'; '.join(mistakes)}")
            self.say(self.wrong[-1])
            return
        fused, original = separate_outputs(fused), separate_outputs(original)
        peers = dict(self._peers(place, original, checks))
        del checks  # its double precision results would be memory that no subject has
        grads = gradients(original, inputs)
        with own_draws(original, *peers.values()):
            for what in options.modes:
                counts = bytes_of_regions(subject.plan, mode, place.sizes, what)
                works = {COPY: copy_work(counts, subject.device)}
                contraction = products_work(subject.plan, mode, place.sizes, original, inputs, grads[0], what)
                if contraction is not None and product == "ieee":
                    works[CONTRACTION] = contraction
                for name, module in {FUSED: fused, **peers}.items():
                    graphs = name in peers and uses_graphs(name)
                    works[name] = module_work(module, inputs, grads, what, graphs=graphs)
                chosen = ran(subject, mode, place.sizes, what, fused, inputs)
                self._timed(place, what, sum(counts), works, chosen)

    def _peers(self, place: _Place, original: nn.Module, checks: Checks) -> Iterator[tuple[str, nn.Module]]:
        """Those that can be built and compute the chain; the others are named."""
        for name in self.options.against:
            if is_compiled(name) and self._out_of_time(name):
                self._left_out(f"{place} {name}: left out, out of time")
                continue
            began = self.now()
            try:
                peer = make_peer(name, original, self.backend)
                mistakes = [] if peer is original else checks.peer(peer, graphs=uses_graphs(name))
            except Exception as problem:  # whatever a compiler may raise
                self._left_out(f"{place} {name}: {_message(problem)}")
                continue
            finally:
                self._slowest[name] = max(self._slowest.get(name, 0.0), self.now() - began)
            if mistakes:
                self._left_out(f"{place} {name}: not timed, wrong: {'; '.join(mistakes)}")
                continue
            yield name, peer

    def _out_of_time(self, name: str) -> bool:
        """Whether the limit is reached, or would be by building this peer if it took as long as it did at most."""
        limit = self.options.limit
        return limit is not None and self.now() - self._began + self._slowest.get(name, 0.0) >= limit

    def _timed(self, place: _Place, what: str, count: int, works: dict[str, Work], chosen: Ran) -> None:
        def failed(name: str, problem: Exception) -> None:
            line = f"{place} {what} {name}: {_message(problem)}"
            if name in self.options.against:
                self._left_out(line)
            else:
                self.wrong.append(line)
                self.say(line)

        measured = measure(self.clock, works, failed)
        rows = self._rows(place, what, count, measured, chosen)
        self.rows += rows
        self.write(rows)
        self.say(f"{place} {what}: {_outcome(rows)}, schedule {chosen.told}")

    def _rows(self, place: _Place, what: str, count: int, measured: dict[str, Measured], chosen: Ran) -> list[Row]:
        """contraction_ms is zero for a chain without an anchor, and missing where it could not be measured."""
        peers = [measured[name] for name in self.options.against if name in measured]
        best_device = min((peer.device.median for peer in peers), default=None)
        best_wall = min((peer.wall.median for peer in peers), default=None)
        floor = measured[COPY].device.median if COPY in measured else None
        contraction = measured[CONTRACTION].device.median if CONTRACTION in measured else None
        if not has_anchor(place.subject.plan):
            contraction = 0.0
        machine, plan = self.clock.machine, place.subject.plan
        rows = []
        for name, found in measured.items():
            is_chain = name not in (COPY, CONTRACTION)
            tail = found.device.median - contraction if is_chain and contraction is not None else None
            rows.append(
                Row(
                    run=self.run,
                    gpu=machine.gpu,
                    torch=machine.torch,
                    cuda=machine.cuda,
                    fusegen=__version__,
                    spec=plan.spec.name,
                    shape=str(place.sizes),
                    dtype=place.precision,
                    mode=what,
                    subject=name,
                    device_ms=found.device.median,
                    device_ms_q1=found.device.low,
                    device_ms_q3=found.device.high,
                    device_samples=found.device.count,
                    wall_us=found.wall.median,
                    wall_us_q1=found.wall.low,
                    wall_us_q3=found.wall.high,
                    wall_samples=found.wall.count,
                    peak_bytes=found.peak,
                    device_ratio=_quotient(found.device.median, best_device) if is_chain else None,
                    wall_ratio=_quotient(found.wall.median, best_wall) if is_chain else None,
                    tail_bytes=count,
                    floor_ms=floor,
                    contraction_ms=contraction,
                    tail_ms=tail,
                    tail_over_floor=_quotient(tail, floor),
                    copy_gb_s=self.ceilings.copy,
                    contraction_tflop_s=self.ceilings.contraction.get(place.precision),
                    targets=" ".join(plan.spec.targets),
                    seed=self.options.seed,
                    command=self.command,
                    schedule=chosen.schedule if name == FUSED else "",
                    launches=chosen.launches if name == FUSED else "",
                )
            )
        return rows

    def _left_out(self, line: str) -> None:
        self.problems.append(line)
        self.say(line)


@dataclass(frozen=True)
class _Place:
    """A spec, a shape and a precision, and how messages name them."""

    subject: Subject
    sizes: Sizes
    precision: str

    @property
    def dtype(self) -> str:
        return PRECISIONS[self.precision].dtype

    def __str__(self) -> str:
        return f"{self.subject.plan.spec.name} {self.sizes} {self.precision}"


def _outcome(rows: Sequence[Row]) -> str:
    by_name = {row.subject: row for row in rows}
    if FUSED not in by_name:
        return "the fused module was not measured"
    fused = by_name[FUSED]
    peers = [row for row in rows if row.subject not in (FUSED, COPY, CONTRACTION)]
    parts = [f"fused {fused.device_ms:.4g} ms"]
    if peers:
        best = min(peers, key=lambda row: row.device_ms or 0.0)
        parts.append(f"best peer {best.subject} {best.device_ms:.4g} ms (ratio {fused.device_ratio:.3f})")
    if fused.tail_over_floor is not None:
        parts.append(f"tail {fused.tail_over_floor:.2f} of the floor")
    return ", ".join(parts)


def _quotient(value: float | None, divisor: float | None) -> float | None:
    return value / divisor if value is not None and divisor else None


def _message(problem: Exception) -> str:
    return " ".join(f"{type(problem).__name__}: {problem}".split())[:_MESSAGE_LENGTH]
