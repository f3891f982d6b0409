"""A report in each format of `fusegen plan`."""

from __future__ import annotations

from fusegen.explain.model import Report
from fusegen.explain.picture import picture
from fusegen.explain.text import text_of


def write(report: Report, format_: str) -> str:
    """format_: text, json or svg."""
    if format_ == "json":
        return report.model_dump_json(indent=2) + "\n"
    if format_ == "text":
        return text_of(report) + "\n"
    return picture(report)
