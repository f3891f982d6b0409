"""What an unquoted YAML scalar means: the core schema of YAML 1.2, and nothing beyond it.

Written out here, rather than taken from a YAML library, so that `on`, `2020-01-01` and `1_000` are text
everywhere and a number is refused before it is converted when it could not be held exactly.
"""

from __future__ import annotations

import math
import re

# Beyond this, a number that passes through a double (JSON, a float argument) would silently change.
MAX_INTEGER = 2**53
# Enough for any accepted number in any base; longer ones are refused without converting them.
_MAX_DIGITS = 4 + 64

_NULL = re.compile(r"~|null|Null|NULL|")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


class BadNumber(ValueError):
    """A scalar that is a number, but not one that a spec may hold."""


def resolve(text: str) -> str | int | float | bool | None:
    """The value of a plain scalar. Raises BadNumber for numbers that are not finite or too large."""
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text):
        return True
    if _FALSE.fullmatch(text):
        return False
    for pattern, base in ((_INTEGER, 10), (_OCTAL, 8), (_HEXADECIMAL, 16)):
        if pattern.fullmatch(text):
            return _integer(text, base)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise BadNumber("the number is too large for a double")
        return number
    if _NOT_FINITE.fullmatch(text):
        raise BadNumber("a number must be finite")
    return text


def _integer(text: str, base: int) -> int:
    digits = text.lstrip("+-") if base == 10 else text[2:]
    significant = digits.lstrip("0") or "0"
    if len(significant) > _MAX_DIGITS or int(significant, base) > MAX_INTEGER:
        raise BadNumber("a whole number may be at most 2^53 in size")
    return -int(significant, base) if text.startswith("-") else int(significant, base)
