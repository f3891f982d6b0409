"""A report as text: of a plan, and of what runs at one size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap

from fusegen.explain import model
from fusegen.explain.build import build
from fusegen.explain.choices import Question
from fusegen.explain.wording import enumeration, launch, size, time
from fusegen.plan.modules.plan import Plan


def report(plan: Plan) -> str:
    """What `fusegen plan --full` prints behind the answer: the chain, schedules, kernels, bytes, the floor, and why."""
    return text_of(build(plan))


def answer(plan: Plan, question: Question, cache: Path | None = None) -> str:
    """What each program of a chain runs at a size, and why. Arguments and errors are those of `build`."""
    return text_of(build(plan, question, cache))


def text_of(report: model.Report) -> str:
    """A report as text; where launchers chose, what they run."""
    return "\n".join(_at_one_size(report) if report.chosen else _plan(report))


def _at_one_size(report: model.Report) -> Iterator[str]:
    yield f"{report.name}, {report.dtype}, {report.shape} on {report.device.name}"
    for variant in report.variants:
        for program in variant.programs:
            yield ""
            yield f"  {program.name}: {program.taken}"
            for each in program.schedules:
                if each.decision is not None:
                    estimate = "" if each.estimate is None else f" (estimate {each.estimate:.1f})"
                    yield f"    {'takes' if each.runs else 'not  '} {each.kind}: {each.decision}{estimate}"
            yield from (f"    {launch(each)}" for each in program.launches)
            yield from (f"    contiguous: {launch(each)}" for each in program.contiguous)
            yield f"    moves {_moved(program.schedule)}: {time(program.schedule.microseconds)}"
    if report.remarks:
        yield from ["", *_remarks(report)][:-1]
    for variant in report.variants:
        yield ""
        yield from _operators(report, variant)
    yield ""
    yield from _estimates(report)


def _remarks(report: model.Report) -> Iterator[str]:
    for name, lines in report.remarks.items():
        yield from (f"{'' if index else name:12} {line}" for index, line in enumerate(lines))
        yield ""


def _plan(report: model.Report) -> Iterator[str]:
    sizes = ", ".join(f"{name} {count}" for name, count in report.sizes.items())
    yield from [f"{report.name} at {sizes}" if sizes else report.name, ""]
    yield from ["chain", *(f"  {step}" for step in report.chain), ""]
    if report.contraction:
        c = report.contraction
        yield f"contraction  {c.name}: {c.in_features} -> {c.out_features} by {c.by}"
        yield from [f"             {c.bias}"] if c.bias else []
        yield ""
    if report.convolution:
        v = report.convolution
        yield f"convolution  {v.name}: {v.in_channels} -> {v.out_channels} by {v.by}, {v.rows} rows"
        yield from (f"             {line}" for line in wrap(f"in {v.memory_format}: {v.reason}", 100))
        yield from [f"             {v.bias}"] if v.bias else []
        yield ""
    yield from _remarks(report)
    if report.rewrites or report.without:
        off = f"; switched off: {', '.join(report.without)}" if report.without else ""
        yield from [f"rewrites     {', '.join(report.rewrites) or 'none'}{off}", ""]
    for variant in report.variants:
        saved = [f"its input {each.name}" if each.is_input else each.name for each in variant.saved]
        yield f"{variant.name}: saves {enumeration(saved) or 'nothing'} for the backward pass"
        for program in variant.programs:
            yield ""
            yield from _program(report, program)
        yield ""
        yield from _operators(report, variant)
        yield ""
    yield from [*_estimates(report), ""]
    labels = next(iter(report.dtypes.values()))
    yield f"dtypes of {enumeration(list(labels))}:"
    yield from (f"  {name}: {', '.join(found.values())}" for name, found in report.dtypes.items())
    for each in report.tuning:
        yield from ["", f"{each.measured_on}:", *(f"  {line}" for line in each.ranges)]


def _program(report: model.Report, program: model.Program) -> Iterator[str]:
    device = report.device
    yield f"  {program.name}"
    floor = f"{size(program.floor_bytes)} in {report.dtype}: {time(program.floor_microseconds)}"
    yield f"    floor {floor} at {device.bandwidth_gb_s:.0f} GB/s ({device.name})"
    yield f"    reads  {', '.join(program.reads)}"
    yield f"    writes {', '.join(program.writes)}"
    yield from (f"    note   {note}" for note in program.notes)
    for schedule in program.schedules:
        yield f"    {schedule.kind}: {_moved(schedule)}"
        yield f"      because {schedule.reason}"
        yield from (f"      {kernel.name}: {kernel.purpose}" for kernel in schedule.kernels)


def _moved(schedule: model.Schedule) -> str:
    return f"{size(schedule.bytes)}, {schedule.times_floor:.2f} times the floor"


def _estimates(report: model.Report) -> Iterator[str]:
    yield f"times on {report.device.name} are estimates:"
    yield from (f"  {line}" for line in report.estimates)


def _operators(report: model.Report, variant: model.Variant) -> Iterator[str]:
    """A table: what eager PyTorch moves for each operator, what of that is saved, and both sides in all."""
    yield f"  {variant.name}: the operators that are replaced, in {report.dtype}"
    rows = [["operator", *(cell for total in variant.totals for cell in (total.direction, "", "saved"))]]
    for each in variant.operators:
        rows.append([each.step, *(cell for moves in (each.forward, each.backward) for cell in _moves(moves))])
    eager, fused = ["eager PyTorch"], ["fused kernels"]
    for total in variant.totals:
        eager += [size(total.eager_bytes), time(total.eager_microseconds), ""]
        fused += [size(total.fused_bytes), time(total.fused_microseconds), size(total.saved_bytes)]
    rows += [eager, fused]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield f"    {'  '.join([first.ljust(widths[0]), *cells])}".rstrip()
    known = [total for total in variant.totals if total.eager_product is not None]
    parts = [f"{t.direction} {time(t.fused)} instead of {time(t.eager)}" for t in known]
    yield from [f"    with the product, {enumeration(parts)}"] if parts else []


def _moves(moves: model.Moves) -> list[str]:
    """Nothing is moved where a gradient is passed on, and by a linear layer besides its product."""
    return [size(moves.bytes), time(moves.microseconds), size(moves.saved_bytes)] if moves.bytes else ["-", "", ""]
