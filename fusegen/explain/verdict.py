"""The answer that a plan begins with, and other commands end with: what a module is expected to take beside eager
PyTorch; and what runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusegen.explain import model
from fusegen.explain.wording import enumeration, size, time

LEAST_GAIN = 1.02  # estimates tell no smaller one


def verdict(
    reports: Sequence[model.Report],
    totals: Sequence[model.Total],
    sizes: Mapping[str, int],
    left_out: Sequence[str] = (),
) -> list[str]:
    """Two lines, of a training step and of its forward pass, behind one that says for what.

    reports: of the regions that have kernels. totals: of the whole, forward and backward. sizes: at which they are.
    left_out: what has a time that is not known, such as regions.
    """
    head, step, forward = _answer(reports, totals, _at(sizes), left_out)
    return [f"  {head}:", f"    step     {step}", f"    forward  {forward}"]


def one_line(
    reports: Sequence[model.Report],
    totals: Sequence[model.Total],
    at: Mapping[str, int] | str,
    left_out: Sequence[str] = (),
) -> str:
    """The same, in a line. at: the sizes, or what they are called; reports may be of several devices and dtypes."""
    head, step, forward = _answer(reports, totals, at if isinstance(at, str) else _at(at), left_out)
    return f"{head}: step {step}; forward {forward}"


def _answer(
    reports: Sequence[model.Report], totals: Sequence[model.Total], at: str, left_out: Sequence[str]
) -> tuple[str, str, str]:
    """What the times are for, that of a step, and that of its forward pass."""
    forward = totals[0]
    fused, eager = sum(each.fused for each in totals), sum(each.eager for each in totals)
    devices = enumeration(list(dict.fromkeys(report.device.name for report in reports)))
    dtypes = enumeration(list(dict.fromkeys(report.dtype for report in reports)))
    end = "" if round(eager / fused, 2) >= LEAST_GAIN else ", not worth it here"
    head = f"expected on {devices} in {dtypes}{at}{_besides(reports, forward, left_out)}"
    return head, f"{_beside(fused, eager)}{end}", _beside(forward.fused, forward.eager)


def _at(sizes: Mapping[str, int]) -> str:
    return f" at {', '.join(f'{name} {count}' for name, count in sizes.items())}" if sizes else ""


def what_runs(report: model.Report) -> list[str]:
    """A line for each program: its first schedule, which is the one whose time counts, and what that moves; then what
    keys of the spec cost and save."""
    programs = {program.name: program for variant in report.variants for program in variant.programs}
    width = max(map(len, (*programs, *report.remarks)))
    made = [report.contraction.by] if report.contraction else [report.convolution.by] if report.convolution else []
    lines = [f"{'product' if report.contraction else 'convolution':{width}}  {by}" for by in made]
    for program in programs.values():
        moved = f"{size(program.schedule.bytes)}, {program.schedule.times_floor:.2f} times the floor"
        lines.append(f"{program.name:{width}}  {program.taken}: {moved}")
    for name, remarks in report.remarks.items():
        lines += [f"{'' if index else name:{width}}  {line}" for index, line in enumerate(remarks)]
    return lines


def _beside(fused: float, eager: float) -> str:
    return f"{time(fused)}, eager PyTorch {time(eager)}: {eager / fused:.2f} times as fast"


def _besides(reports: Sequence[model.Report], total: model.Total, left_out: Sequence[str]) -> str:
    """What both sides have and no figure has, as the end of a sentence."""
    products = any(report.contraction for report in reports) and total.eager_product is None
    left = [*(["the products"] if products else []), *(["the convolutions"] if _convolved(reports) else []), *left_out]
    return f", without {enumeration(list(dict.fromkeys(left)))}" if left else ""


def _convolved(reports: Sequence[model.Report]) -> bool:
    return any(report.convolution for report in reports)
