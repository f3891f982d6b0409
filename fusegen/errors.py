"""The errors fusegen raises: theirs (SpecError, with a place in the file) and ours (InternalError)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

# One line a code. FG1xx: the file as YAML. FG2xx: the spec's fields and names. FG3xx: what the chain means.
# FG4xx: planning. FG5xx: output and tools. FG6xx: the tuning beside a spec. FG7xx: a module to import. A code keeps its
# meaning for good; a retired one is not reused.
CODES: dict[str, str] = {
    "FG101": "the file cannot be read",
    "FG102": "the file is not UTF-8 text",
    "FG103": "the file is too large",
    "FG104": "the file is not well-formed YAML",
    "FG105": "a key occurs twice in one mapping",
    "FG106": "a YAML feature that specs may not use: anchor, alias, merge key, tag or directive",
    "FG107": "nested too deeply",
    "FG108": "a key is not text",
    "FG109": "a number that is not finite or too large to be exact",
    "FG110": "more than one YAML document in the file",
    "FG111": "the top level is not a mapping",
    "FG201": "unknown key",
    "FG202": "missing field",
    "FG203": "unknown op",
    "FG204": "a value of the wrong type",
    "FG205": "a value that is not allowed here",
    "FG206": "a name that is no identifier or is reserved",
    "FG207": "a name that every generated module has for something already",
    "FG208": "one name for two things",
    "FG209": "a symbol that `dims` does not declare",
    "FG210": "a symbol that nothing uses",
    "FG211": "unsupported dtype",
    "FG212": "unsupported target",
    "FG213": "unsupported format version",
    "FG214": "a default that contradicts the rest of the spec",
    "FG301": "a reference to a value, input or argument that is not there",
    "FG302": "an argument of the wrong kind for this place",
    "FG303": "shapes that do not fit",
    "FG304": "groups that do not divide the channels",
    "FG305": "two parameters with one name",
    "FG306": "a value, input or argument that nothing uses",
    "FG307": "an operand given not at all or more than once",
    "FG308": "an op used where it is not defined",
    "FG309": "a value of each row where one of each element is needed",
    "FG401": "a chain that the planner cannot schedule",
    "FG402": "a size that the planner cannot handle",
    "FG501": "an output directory that is not fusegen's",
    "FG502": "the output cannot be written",
    "FG503": "a tool that is missing or failed",
    "FG504": "a spec that is not in a file of its own name",
    "FG505": "no specs where they were looked for",
    "FG506": "a file edited by hand that would have to be removed",
    "FG507": "the output cannot be read",
    "FG508": "a file edited by hand that would be overwritten",
    "FG509": "a wheel that would not run where it says, or that no tool packs",
    "FG510": "what an exported file cannot have, or cannot be made of",
    "FG511": "a plugin whose ops cannot be taken",
    "FG601": "a tuning of what the plan lacks",
    "FG602": "a size that is tuned twice",
    "FG701": "a module that cannot be loaded, made or traced",
    "FG702": "control flow that depends on data",
    "FG703": "an operator that a chain lacks",
    "FG704": "a change of a tensor in place",
    "FG705": "results that are not new tensors of the input's rows",
    "FG706": "a parameter, buffer or input that a chain cannot hold",
    "FG707": "values that do not follow each other as the steps of a chain",
    "FG708": "a spec that computes something else than its module",
    "FG709": "a module that is another chain in evaluation",
    "FG710": "a module that is another chain in another dtype, on another device or in another mode of PyTorch",
    "FG711": "a forward that changes the module, or draws random numbers",
}

# A spec may be one line of 256 KiB; show only this much of a line.
MAX_SHOWN_COLUMNS = 110
# And of a file that is no spec at all, only this many of the mistakes. `diagnostics` has them all.
MAX_SHOWN_ERRORS = 100


class FusegenError(Exception):
    """Base of every error that fusegen raises on purpose."""


class InternalError(FusegenError):
    """A bug of fusegen itself, whatever the spec says."""


@dataclass(frozen=True, order=True)
class Location:
    """A place in a file; line and column count characters from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Diagnostic:
    """One mistake: what, where, and how it might be repaired. `source` is the text of the line it is on."""

    code: str
    message: str
    location: Location | None = None
    hint: str | None = None
    source: str | None = None

    def header(self) -> str:
        """The one-line form, without the source line."""
        place = f"{self.location}: " if self.location else ""
        hint = f" ({self.hint})" if self.hint else ""
        return printable(f"{place}error[{self.code}]: {self.message}{hint}")

    def render(self) -> str:
        """The header, then the source line with a caret below the column."""
        if self.location is None or self.source is None:
            return self.header()
        shown, before = _excerpt(self.source, self.location.column)
        caret = "".join(_blank(char) for char in before) + "^"
        return f"{self.header()}\n    {shown}\n    {caret}"

    def sort_key(self) -> tuple[object, ...]:
        """By position; what has none comes first."""
        where = self.location
        position = (where.file, where.line, where.column) if where else ("", 0, 0)
        return (*position, self.code, self.message)


class SpecError(FusegenError):
    """The user's input is at fault. Carries every mistake that was found, sorted by position."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = tuple(sorted(dict.fromkeys(diagnostics), key=Diagnostic.sort_key))
        if not self.diagnostics:
            raise InternalError("a SpecError without a diagnostic")
        super().__init__(self.diagnostics)

    def __str__(self) -> str:
        parts = [diagnostic.render() for diagnostic in self.diagnostics[:MAX_SHOWN_ERRORS]]
        if len(self.diagnostics) > MAX_SHOWN_ERRORS:
            parts.append(f"and {len(self.diagnostics) - MAX_SHOWN_ERRORS} more errors")
        return "\n".join(parts)


def printable(text: str) -> str:
    """`text` with everything escaped that could move a terminal's cursor or hide characters."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def quote(text: str, limit: int = 40) -> str:
    """`text` in single quotes for a message: control characters escaped, long text cut short."""
    return f"'{printable(text[:limit])}{'...' if len(text) > limit else ''}'"


def _excerpt(source: str, column: int) -> tuple[str, str]:
    """The part of a source line to show, and what of it lies before the column."""
    before = column - 1
    # Cut first: a thousand mistakes in one long line must not each go through all of it.
    start = max(0, before - MAX_SHOWN_COLUMNS // 2) if len(source) > MAX_SHOWN_COLUMNS else 0
    line = source[start : start + MAX_SHOWN_COLUMNS].rstrip()
    line = "".join(char if char.isprintable() or char == "\t" else "\ufffd" for char in line)
    return line, line[: before - start].ljust(before - start)


def _blank(char: str) -> str:
    """White space as wide as the character, so that the caret stays below its column."""
    if char == "\t":
        return "\t"
    if unicodedata.combining(char):
        return ""
    return "  " if unicodedata.east_asian_width(char) in "WF" else " "
