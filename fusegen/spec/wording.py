"""How messages put things: what was found, what was expected, what may have been meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from fusegen.errors import quote

# Comparing is quadratic in the length, and nobody misspells a longer word by accident.
_MAX_COMPARED = 64
# Nor is a file with more names than this a spec that someone wrote.
_MAX_KNOWN = 100
_PLAIN = re.compile(r"[A-Za-z]\w{0,63}", re.ASCII)
# A longer list of choices hides the message.
_MAX_LISTED = 10


def found(value: Any) -> str:
    """What a YAML value is, in words: `the text 'abc'`, `the number 3`, `a list`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {quote(value)}"
    return "a list" if isinstance(value, list | tuple) else "a mapping"


def alternatives(parts: Iterable[str]) -> str:
    """`a`, `a or b`, `a, b or c`, each once."""
    unique = list(dict.fromkeys(parts))
    if len(unique) < 2:
        return "".join(unique)
    return f"{', '.join(unique[:-1])} or {unique[-1]}"


def nearest(word: str, known: Sequence[str]) -> str | None:
    """The known word that this one may be a misspelling of."""
    if len(word) > _MAX_COMPARED or len(known) > _MAX_KNOWN:
        return None
    by_lower = {name.lower(): name for name in reversed(known)}
    close = difflib.get_close_matches(word.lower(), list(by_lower), n=1)
    return by_lower[close[0]] if close else None


def suggest(word: str, known: Sequence[str], *, among: str = "known") -> str | None:
    """A hint for a word that is not among the known ones: the nearest, else the list if it is short."""
    close = nearest(word, known)
    if close is not None:
        return f"did you mean {quote(close)}?"
    plain = [name for name in known if _PLAIN.fullmatch(name)]  # those of a spec may be anything
    return f"{among}: {', '.join(plain)}" if plain and len(known) <= _MAX_LISTED else None
