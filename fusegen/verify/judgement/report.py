"""The findings of a verification as a table, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fusegen.verify.judgement.findings import Finding, Report, nearness

FORMAT = 1


def table(report: Report) -> RenderableType:
    """The worst of each quantity, a line for each kind of behaviour, and all that failed."""
    parts: list[RenderableType] = [_numerics(report.findings), _behaviour(report)]
    parts += [Text(f"{check}: {place}", style="yellow") for check, place in report.sizes.items()]
    if report.failed:
        parts.append(_failures(report.failed))
    count = len(report.findings)
    verdict = "passed" if report.ok else f"{len(report.failed)} failed"
    parts.append(Text(f"{report.name}: {count} comparisons, {verdict}, {report.seconds:.1f} s\n", style="bold"))
    return Group(*parts)


def to_json(reports: Sequence[Report], *, device: str, torch_version: str, seed: int) -> dict[str, object]:
    """The whole of it. Errors are fractions of the reference's magnitude, null where they are not finite."""
    return {
        "format": FORMAT,
        "ok": all(report.ok for report in reports),
        "device": device,
        "torch": torch_version,
        "seed": seed,
        "packages": [
            {
                "name": report.name,
                "ok": report.ok,
                "seconds": round(report.seconds, 3),
                "skipped": report.skipped,
                "sizes": report.sizes,
                "findings": [_finding_json(finding) for finding in report.findings],
            }
            for report in reports
        ],
    }


def _has_figures(finding: Finding) -> bool:
    return finding.check in ("numerics", "training") and bool(finding.item.bound.largest)


def _numerics(findings: Iterable[Finding]) -> Table:
    worst: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        if _has_figures(finding):
            key = (finding.check, finding.item.name)
            if key not in worst or nearness(finding.item) > nearness(worst[key].item):
                worst[key] = finding
    shown = Table("quantity", "fused", "eager", "bound", "used", "where it is worst", box=None, header_style="bold")
    for column in shown.columns[1:5]:
        column.justify = "right"
    for (check, name), finding in worst.items():
        if check == "training" and not name.startswith("step 3"):
            continue
        item = finding.item
        figures = (f"{error.largest:.1e}" for error in (item.fused, item.eager, item.bound))
        where = f"{finding.shape} {finding.dtypes} {finding.mode}"
        shown.add_row(name, *figures, f"{nearness(item):.0%}", where, style="" if item.ok else "red")
    return shown


def _behaviour(report: Report) -> Table:
    shown = Table("check", "of", "passed", "", box=None, header_style="bold")
    for check in dict.fromkeys(finding.check for finding in report.findings):
        mine = [finding for finding in report.findings if finding.check == check]
        passed = sum(finding.item.ok for finding in mine)
        notes = {f"{f.item.name}: {f.item.note}" for f in mine if f.check == "memory" and f.dtypes == "float32"}
        if share := max(finding.item.left_out for finding in mine):
            notes.add(f"up to {share:.1%} of an output left out, near jumps")
        style = "" if passed == len(mine) else "red"
        shown.add_row(check, str(len(mine)), str(passed), "; ".join(sorted(notes)), style=style)
    for check, reason in report.skipped.items():
        shown.add_row(check, "0", "0", f"not made: {reason}", style="yellow")
    return shown


def _failures(failed: Sequence[Finding]) -> Table:
    shown = Table("failed", "quantity", "fused", "bound", "note", box=None, header_style="bold red")
    for finding in failed:
        where = " ".join(filter(None, (finding.check, finding.shape, finding.dtypes, finding.mode)))
        item = finding.item
        shown.add_row(where, item.name, f"{item.fused.largest:.1e}", f"{item.bound.largest:.1e}", item.note)
    return shown


def _finding_json(finding: Finding) -> dict[str, object]:
    item = finding.item
    found: dict[str, object] = {
        "check": finding.check,
        "shape": finding.shape,
        "dtypes": finding.dtypes,
        "mode": finding.mode,
        "quantity": item.name,
        "ok": item.ok,
        "note": item.note,
    }
    for name in ("fused", "eager", "bound"):
        error = getattr(item, name)
        found[name] = {key: value if math.isfinite(value) else None for key, value in vars(error).items()}
    return found
