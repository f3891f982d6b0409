"""A module of several regions in `fusegen plan`: how they follow each other, then the plan of each."""

from __future__ import annotations

import json

from fusegen.explain.build import build
from fusegen.explain.choices import Question
from fusegen.explain.formats import write
from fusegen.plan.composition import Composition
from fusegen.render.composition import composition_summary


def write_composition(
    composition: Composition, question: Question | None, target: str | None, format_: str = "text"
) -> str:
    """format_: text, json, or plan.json. question, target: as build() has them, asked of each region."""
    data = composition_summary(composition)
    if format_ == "plan.json":
        return json.dumps(data, indent=2) + "\n"
    reports = [build(plan, question, target=target) for plan in composition.plans]
    if format_ == "json":
        plans = {report.name: report.model_dump(mode="json") for report in reports}
        return json.dumps(data | {"plans": plans}, indent=2) + "\n"
    lines = [f"{data['name']}: {composition.spec.about}", "", "  regions, in order:"]
    width = max(len(region["name"]) for region in data["regions"])
    for region in data["regions"]:
        flow = f"{', '.join(region['takes'])} -> {', '.join(region['makes'])}"
        by = region["package"] or region["by"]
        lines.append(f"    {region['name']:{width}}  {', '.join(region['ops'])}: {flow}  ({by})")
    lines.append(f"  returns {', '.join(data['returns'])}")
    return "\n".join([*lines, "", *(write(report, "text") for report in reports)])
