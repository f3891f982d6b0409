"""What the chains of a model are expected to take beside eager PyTorch, each at the sizes of its place."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from fusegen.errors import SpecError
from fusegen.explain import model
from fusegen.explain.build import build
from fusegen.explain.verdict import one_line
from fusegen.explain.whole import summed
from fusegen.plan.load import plan_document
from fusegen.spec.yaml import parse_yaml


def expected(specs: Sequence[str | None]) -> str | None:
    """A line for all places together. specs: of each place, the text of a spec with its sizes; None where these are not
    known. None without any place."""
    if not specs:
        return None
    found = [None if text is None else _report(text) for text in specs]
    reports = [each for each in found if each is not None]
    unknown = len(found) - len(reports)
    if not reports:
        return "expected times beside eager PyTorch are not known: sizes change from call to call"
    left_out = [f"{unknown} place{'s' * (unknown != 1)} whose sizes change"] if unknown else []
    totals = [
        summed(each, [], reports, whole=True)
        for each in zip(*(report.variants[0].totals for report in reports), strict=True)
    ]
    at = reports[0].sizes if len(reports) == 1 else f" at the sizes of these {len(reports)} places"
    return f"these chains alone: {one_line(reports, totals, at, left_out)}"


@cache
def _report(text: str) -> model.Report | None:
    """None for sizes that cannot be planned, though others of the chain can."""
    try:
        return build(plan_document(parse_yaml(text, "the chain of a model")))
    except SpecError:
        return None
