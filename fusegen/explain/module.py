"""A module in `fusegen plan`: how its regions follow each other, if there are several, then the plan of each."""

from __future__ import annotations

import json
from collections.abc import Sequence

import typer

from fusegen.explain.build import build
from fusegen.explain.choices import Question, device_of
from fusegen.explain.formats import write
from fusegen.explain.model import Report
from fusegen.explain.page import Shown
from fusegen.explain.picture import picture_of_regions
from fusegen.explain.verdict import one_line, verdict, what_runs
from fusegen.explain.whole import whole_of
from fusegen.plan.modules.module import ModulePlan, module_of
from fusegen.render.python.regions import module_summary


def region_of(planned: Sequence[ModulePlan], name: str) -> ModulePlan:
    """A region of the only spec, as the module of its package. Raises BadParameter where there is none."""
    regions = {
        region.name: region.plan
        for each in planned
        if not each.single
        for region in each.regions
        if region.plan is not None
    }
    if len(planned) != 1 or not regions:
        raise typer.BadParameter("regions are those of one spec that has several", param_hint="--region")
    if name not in regions:
        reason = f"no kernels are in a region {name!r}: they are in {', '.join(regions)}"
        raise typer.BadParameter(reason, param_hint="--region")
    return module_of(regions[name])


def reported(planned: ModulePlan, question: Question | None, target: str | None) -> Shown:
    """What a page has of a spec. question, target: as build() has them, asked of each region."""
    reports = [build(plan, question, target=target) for plan in planned.plans]
    if planned.single:
        return None, reports
    asked = question is not None and (question.rows, question.channels, question.groups) != (None, None, None)
    return whole_of(planned, reports, device_of(planned.plans[0], target), typical=not asked), reports


def written(
    planned: ModulePlan, question: Question | None, target: str | None, format_: str = "text", *, full: bool = True
) -> str:
    """A spec's plan, of several regions behind how they follow each other.

    format_: text, json, svg, or plan.json. question, target: as build() has them, asked of each region. full: text with
    all schedules and reasons; without, what begins it, but for what runs at a size, which is text in full.
    """
    if format_ == "plan.json":
        return json.dumps(module_summary(planned), indent=2) + "\n"
    whole, reports = reported(planned, question, target)
    full = full or any(report.chosen for report in reports)
    if whole is None and format_ == "text":
        return _text(reports[0], full)
    if whole is None:
        return write(reports[0], format_)
    if format_ == "json":
        plans = {report.name: report.model_dump(mode="json") for report in reports}
        together = {
            "totals": [total.model_dump(mode="json") for total in whole.totals],
            "called": {
                name: {"forward": forward.model_dump(mode="json"), "backward": backward.model_dump(mode="json")}
                for name, (forward, backward) in whole.called.items()
            },
            "left_out": whole.left_out,
        }
        return json.dumps(module_summary(planned) | together | {"plans": plans}, indent=2) + "\n"
    if format_ == "svg":
        return picture_of_regions(whole, reports)
    sizes = {} if any(report.chosen for report in reports) else planned.spec.dims
    lines = [f"{whole.name}: {whole.about}", *verdict(reports, whole.totals, sizes, whole.besides)]
    lines += ["", "  regions, in order:"]
    width = max(len(region["name"]) for region in whole.regions)
    for region in whole.regions:
        flow = f"{', '.join(region['takes'])} -> {', '.join(region['makes'])}"
        lines.append(f"    {region['name']:{width}}  {', '.join(region['ops'])}: {flow}  ({whole.maker(region)})")
    lines += [f"  returns {', '.join(whole.returns)}", *(f"  {line}" for line in whole.figures), ""]
    if full:
        return "\n".join([*lines, *(write(report, "text") for report in reports)])
    for report in reports:
        lines += [f"  {report.name}", *(f"    {line}" for line in what_runs(report))]
    return "\n".join([*lines, "", ""])


def expected(planned: ModulePlan) -> str:
    """A line for a spec at its own sizes: what `fusegen plan` begins with."""
    whole, reports = reported(planned, None, None)
    if whole is None:
        return one_line(reports, reports[0].variants[0].totals, reports[0].sizes)
    return one_line(reports, whole.totals, planned.spec.dims, whole.besides)


def _text(report: Report, full: bool) -> str:
    """The plan of a module of one region."""
    head = [f"{report.name}: {report.about}", *verdict([report], report.variants[0].totals, report.sizes)]
    if full:
        return "\n".join([*head, "", write(report, "text")])
    return "\n".join([*head, "  runs:", *(f"    {line}" for line in what_runs(report)), "", ""])
