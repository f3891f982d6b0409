"""The diagnostics of a chain, collected while it is built step by step."""

from __future__ import annotations

from collections.abc import Collection

from fusegen.errors import Diagnostic
from fusegen.spec.document import Document, DocumentPath

Field = str | DocumentPath | None
"""A key of a step, the path of a place below one, or the step itself."""

# What is said of one key of a step holds whatever its other keys are.
_OF_ONE_KEY = frozenset({"FG206", "FG208", "FG209", "FG301", "FG302", "FG305"})


class StepError(Exception):
    """A step that does not fit its chain. field: the key of the step it is about."""

    def __init__(self, code: str, message: str, field: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.field, self.hint = code, message, field, hint


class Diagnostics:
    """Collects what is wrong, each with its place, in `found`.

    unreadable: what is missing from the spec at hand. missing_keys: those of the present step. Without them it may seem
    to have errors that only follow from that.
    """

    def __init__(self, document: Document, unreadable: Collection[DocumentPath]) -> None:
        self.document = document
        self.found: list[Diagnostic] = []
        self._unreadable = unreadable
        self._step = 0
        self.missing_keys: frozenset[str | int] = frozenset()

    def enter(self, step: int) -> None:
        """Whatever is refused from now on is about this step of the chain."""
        self._step = step
        here = ("chain", step)
        self.missing_keys = frozenset(path[2] for path in self._unreadable if path[:2] == here and len(path) > 2)

    def refuse(self, code: str, message: str, field: Field = None, hint: str | None = None) -> None:
        """Adds an error of the present step."""
        place = self.place(field)
        if self.missing_keys and (code not in _OF_ONE_KEY or place[2:3] == () or place[2] in self.missing_keys):
            return
        self.add(code, message, place, hint)

    def add(
        self,
        code: str,
        message: str,
        path: DocumentPath,
        hint: str | None = None,
        *,
        key: bool = False,
        last: bool = False,
    ) -> None:
        """Adds an error anywhere. key: at the key of the path. last: unless its place has one already."""
        diagnostic = self.document.diagnostic(code, message, path, key=key, hint=hint)
        if not last or all(other.location != diagnostic.location for other in self.found):
            self.found.append(diagnostic)

    def place(self, field: Field) -> DocumentPath:
        """Where a key of the present step is."""
        below = () if field is None else (field,) if isinstance(field, str) else field
        return ("chain", self._step, *below)
