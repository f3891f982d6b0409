"""Which of the names that a spec declares something refers to, and what a reference to none of them may have meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from fusegen.errors import quote
from fusegen.spec.document import Document, DocumentPath
from fusegen.spec.partial import words
from fusegen.spec.wording import nearest

Kind = Literal["symbol", "argument", "input", "value", "parameter"]


class References:
    """The references of one spec. unreadable: where in the document is what nobody could read."""

    def __init__(self, document: Document, unreadable: Iterable[DocumentPath]) -> None:
        self._used: set[tuple[Kind, str]] = set()
        self._doubtful: set[Kind] = set()
        # What cannot be read may refer to any name that it mentions, or to one that is spelt almost like it.
        # Of a step that lacks a key, the others may go unused.
        places = {path[:2] for path in unreadable}
        self._mentioned = {word for place in places for word in words(_at(document.data, place))}
        self._nothing_known = bool(document.problems) or any(len(path) == 1 for path in unreadable)

    def use(self, kind: Kind, name: str) -> None:
        self._used.add((kind, name))

    def missing(self, kind: Kind, name: str, known: Iterable[str], words: Iterable[str] = ()) -> str | None:
        """Notes a reference to a name that is not there, and returns a hint. words: what else may stand there."""
        known = list(known)
        close = nearest(name, [*words, *known])
        if close is None:
            self._doubtful.add(kind)
        else:
            self.use(kind, close)
        return f"did you mean {quote(close)}?" if close else None

    def unused(self, kind: Kind, names: Iterable[str]) -> Iterator[str]:
        """Those that nothing refers to. A name that a misspelt reference may have meant is left out: one complaint
        is enough."""
        if self._nothing_known or kind in self._doubtful:
            return
        for name in names:
            mentioned = any(word == name or nearest(word, [name]) for word in self._mentioned)
            if (kind, name) not in self._used and not mentioned:
                yield name


def _at(data: Any, path: DocumentPath) -> Any:
    """The data at a path, or None: a key that was refused is not in it."""
    for step in path:
        if isinstance(data, dict):
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int):
            data = data[step]
        else:
            return None
    return data
