"""A report as text for people, as JSON for programs and as annotations for GitHub Actions.

JSON, format 1. Fields may be added; these stay:

    {"format": 1,
     "ok": bool,                    # no findings and no errors
     "findings": [{"path": str,     # with the output directory as it was given
                   "kind": "edited" | "stale" | "stale_plan" | "version" | "changed" | "conflict" | "line_endings"
                           | "missing" | "orphaned" | "manifest" | "library",
                   "title": str,    # the kind in words
                   "meaning": str,  # a sentence
                   "line": int,     # the first that differs, from 1
                   "diff": str}],   # all of it; bytes that are not UTF-8 as \\xNN; empty for a library
     "errors": [{"code": str, "message": str, "hint": str | null,
                 "file": str | null, "line": int | null, "column": int | null}],   # mistakes in the specs
     "repair": str | null}          # one command line

With errors nothing was compared, and `findings` is empty.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from fusegen.check.compare import FOLLOWS, some
from fusegen.check.diff import first_difference
from fusegen.check.findings import Finding
from fusegen.check.run import Report, from_root
from fusegen.errors import SpecError, printable
from fusegen.render.files.manifest import MANIFEST

# Of one file's diff; where every line is new, gone or changed, the first ones tell enough.
SHOWN_LINES = 80
SHOWN_LINES_OF_WHOLE_FILES = 12
SHOWN_LINES_IN_ANNOTATION = 20

_STYLES = {"+": "green", "-": "red", "@": "cyan", "d": "bold", "n": "bold", "\\": "dim"}


def formatted(report: Report, format_: str, *, colour: bool = False) -> str:
    """What the standard output gets. format_: text, json or github. colour: text for a terminal."""
    if format_ == "json":
        return as_json(report)
    return as_github(report) if format_ == "github" else as_text(report, colour)


def as_text(report: Report, colour: bool = False) -> str:
    """For a terminal or a log."""
    if report.ok:
        packages = "1 package" if report.packages == 1 else f"{report.packages} packages"
        fine = f"{report.output} is what the specs and templates give: {packages}, {report.files} files"
        return "".join(f"{line}\n" for line in [fine, *_others(report)])
    if report.fresh or report.elsewhere:
        return _nothing(report)
    lines = []
    by_other, rest = _by_version(report)
    if by_other:
        lines += [(f"{report.output}: {by_other[0].title}", "bold"), (f"  {_other_version(by_other)}", ""), ("", "")]
    missing, rest = _missing(report, rest)
    for path, (title, meaning) in missing.items():
        lines += [(f"{report.output / path}: {title}", "bold"), (f"  {meaning}", ""), ("", "")]
    for finding in rest:
        lines += [(f"{report.output / finding.path}: {finding.title}", "bold"), (f"  {finding.meaning}", "")]
        lines += [(line, _style(line)) for line in _excerpt(report, finding, _limit(finding))]
        lines.append(("", ""))
    count = len(report.findings)
    differ = "1 file is" if count == 1 else f"{count} files are"
    lines.append((f"{differ} not what the specs and templates give. To repair:", ""))
    lines.append((f"  {report.repair}", "bold"))
    lines += [(line, "") for line in _others(report)]
    if not colour:
        return "".join(f"{line}\n" for line, _ in lines)
    buffer = io.StringIO()
    console = Console(file=buffer, force_terminal=True, color_system="standard", no_color=False)
    console.print(Text("\n").join(Text(line, style) for line, style in lines), soft_wrap=True)
    return buffer.getvalue()


def _nothing(report: Report) -> str:
    """Instead of a finding for every file that there will be."""
    if report.elsewhere is not None:
        return f"{report.output} has none of these packages, {report.elsewhere} has them: {report.repair}\n"
    return f"{report.output} has nothing of fusegen's yet. To build it: {report.repair}\n"


def _others(report: Report) -> list[str]:
    """What was not compared, since it is not what the given specs gave."""
    if not report.others:
        return []
    files = sorted({path.as_posix() for path in report.others.values()})
    return [f"Not compared: packages of {some(files)}"]


def _by_version(report: Report) -> tuple[list[Finding], list[Finding]]:
    """What another version rendered, the manifest last, and everything else."""
    by_other = [finding for finding in report.findings if finding.kind == "version"]
    return by_other, [finding for finding in report.findings if finding.kind != "version"]


def _missing(report: Report, findings: list[Finding]) -> tuple[dict[str, tuple[str, str]], list[Finding]]:
    """What is not there, by package or file: a title and a sentence. And the other findings.

    A package of which nothing is there is told once, and so are several files of one directory.
    """
    folders: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.kind == "missing":
            folders.setdefault(finding.path.partition("/")[0], []).append(finding)
    shown = {}
    for folder, group in folders.items():
        title, count = group[0].title, len(group)
        if folder in report.absent:
            shown[folder] = title, f"{report.absent[folder]} gives this package, and nothing of it is there."
        elif count == 1:
            shown[group[0].path] = title, group[0].meaning
        else:
            names = some([finding.path.partition("/")[2] for finding in group])
            shown[folder] = f"{count} files {title}", f"They are not there: {names}."
    return shown, [finding for finding in findings if finding.kind != "missing"]


def _other_version(findings: list[Finding]) -> str:
    """One sentence for all of them."""
    *others, manifest = findings
    files = f" {some([finding.path for finding in others])}" if others else " none but this"
    return f"{manifest.meaning.removesuffix('.')}. Other text:{files}."


def _limit(finding: Finding) -> int:
    whole = finding.new is None or finding.kind == "line_endings"
    return SHOWN_LINES_OF_WHOLE_FILES if whole else SHOWN_LINES


def _style(line: str) -> str:
    return "bold" if line.startswith(("--- ", "+++ ")) else _STYLES.get(line[:1], "")


def as_json(report: Report) -> str:
    findings = [
        {
            "path": str(report.output / finding.path),
            "kind": finding.kind,
            "title": finding.title,
            "meaning": finding.meaning,
            "line": first_difference(finding.old, finding.new),
            "diff": _decoded(report.diff(finding)),
        }
        for finding in report.findings
    ]
    return _json(report.ok, findings, [], report.repair)


def as_github(report: Report) -> str:
    """One `::error` line a finding, at the first line that differs; one for all that another version rendered."""
    if report.fresh or report.elsewhere:
        return _command(_nothing(report).rstrip("\n"), title="generated files: not there")
    lines = []
    by_other, rest = _by_version(report)
    if by_other:
        message = f"{_other_version(by_other)}\nTo repair all: {report.repair}"
        file = str(report.rooted / MANIFEST)
        lines.append(_command(message, file=file, line=1, title=f"generated files: {by_other[0].title}"))
    missing, rest = _missing(report, rest)
    for path, (title, meaning) in missing.items():
        message = f"{meaning}\nTo repair all: {report.repair}"
        lines.append(_command(message, file=str(report.rooted / path), line=1, title=f"generated file: {title}"))
    for finding in rest:
        excerpt = "\n".join(_excerpt(report, finding, SHOWN_LINES_IN_ANNOTATION))
        lines.append(
            _command(
                f"{finding.meaning}\nTo repair all: {report.repair}\n{excerpt}",
                file=str(report.rooted / finding.path),
                line=first_difference(finding.old, finding.new),
                title=f"generated file: {finding.title}",
            )
        )
    return "".join(lines) or as_text(report)


def refused(error: SpecError, format_: str) -> str:
    """What the standard output gets when a spec is wrong; the error itself goes to the other one."""
    if format_ == "json":
        return _json(False, [], [_mistake(each) for each in error.diagnostics], None)
    if format_ == "github":
        return "".join(_annotation(each) for each in error.diagnostics)
    return ""


def _mistake(diagnostic: Any) -> dict[str, Any]:
    where = diagnostic.location
    place = {"file": where.file, "line": where.line, "column": where.column} if where else {}
    return {
        "code": diagnostic.code,
        "message": diagnostic.message,
        "hint": diagnostic.hint,
        **{name: place.get(name) for name in ("file", "line", "column")},
    }


def _annotation(diagnostic: Any) -> str:
    where = diagnostic.location
    place = {"file": str(from_root(Path(where.file))), "line": where.line, "col": where.column} if where else {}
    hint = f" ({diagnostic.hint})" if diagnostic.hint else ""
    return _command(f"{diagnostic.message}{hint}", **place, title=f"spec: {diagnostic.code}")


def _json(ok: bool, findings: list[dict[str, Any]], errors: list[dict[str, Any]], repair: str | None) -> str:
    content = {"format": 1, "ok": ok, "findings": findings, "errors": errors, "repair": repair}
    return json.dumps(content, indent=2) + "\n"


def _command(message: str, **properties: object) -> str:
    """A workflow command. A line break in the text would end it, and what follows could be another command."""
    escaped = ",".join(f"{name}={_escape(str(value), ',:')}" for name, value in properties.items())
    return f"::error {escaped}::{_escape(message)}\n"


def _escape(text: str, also: str = "") -> str:
    for char in f"%\r\n{also}":
        text = text.replace(char, f"%{ord(char):02X}")
    return text


def _excerpt(report: Report, finding: Finding, limit: int) -> list[str]:
    """The first lines of a diff as they may be shown anywhere, and how many there are more; none where all of it would
    be new, or follows from other findings."""
    if finding.old is None or finding.meaning == FOLLOWS:
        return []
    lines = _decoded(report.diff(finding)).removesuffix("\n").split("\n") if report.diff(finding) else []
    shown = ["\t".join(printable(part) for part in line.split("\t")) for line in lines[:limit]]
    if len(lines) > limit:
        shown.append(f"... {len(lines) - limit} more lines; --patch FILE writes all")
    return shown


def _decoded(diff: bytes) -> str:
    return diff.decode("utf-8", "backslashreplace")
