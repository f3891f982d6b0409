"""Specs as text: all YAML that fusegen writes. What is written here, fusegen.spec.yaml reads as the same data."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fusegen.spec.scalars import BadNumber, resolve

_WIDTH = 120
# Where the remarks behind short steps begin.
_COLUMN = 60
# Of a remark behind a step that is too long for one.
_LEAST = 10

# Words, or a multiple such as 2 * hidden. Of all else many a text would be something else without quotes.
_PLAIN = re.compile(r"([0-9]+ \* )?[A-Za-z][A-Za-z0-9_.]*( [A-Za-z0-9_.]+)*")


def spec_text(data: Mapping[str, Any], head: Sequence[str] = (), remarks: Sequence[str] = ()) -> str:
    """A spec, with one step a line. head: remarks in front. remarks: one for each step; "" is none."""
    lines = [remark(each) for each in head]
    for key, value in data.items():
        lines += entry(key, value, remarks if key == "chain" else ())
    return "\n".join([*lines, ""])


def entry(key: str, value: Any, remarks: Sequence[str] = ()) -> list[str]:
    """The lines of a key at the top level: a mapping has a line for each key, a chain one for each step."""
    if isinstance(value, Mapping) and value:
        return [f"{flow(key)}:", *(f"  {flow(name)}: {flow(each)}" for name, each in value.items())]
    if isinstance(value, list | tuple) and value and all(isinstance(each, Mapping) for each in value):
        pairs = itertools.zip_longest(value, remarks[: len(value)], fillvalue="")
        return [f"{flow(key)}:", *(_with_remark(f"  - {flow(step)}", text) for step, text in pairs)]
    return [f"{flow(key)}: {flow(value)}"]


def flow(value: Any) -> str:
    """A value in YAML's flow style, on one line. Numbers that are not finite are written, and no spec may have them."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(key)}: {flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        return value if _is_plain(value) else _quoted(value)
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return json.dumps(value)


def remark(text: str) -> str:
    """A comment, on one line."""
    return f"# {''.join(char if char.isprintable() else ' ' for char in text)}".rstrip()


def _with_remark(line: str, text: str) -> str:
    """The remark is cut where the line would be too long, but never all of it, nor what is in front of it."""
    if not text:
        return line
    line = f"{line.ljust(_COLUMN)}  "
    written = remark(text)
    most = max(_WIDTH - len(line), _LEAST)
    return line + (written if len(written) <= most else f"{written[: most - 3]}...")


def _is_plain(text: str) -> bool:
    try:
        return _PLAIN.fullmatch(text) is not None and resolve(text) == text
    except BadNumber:
        return False


def _quoted(text: str) -> str:
    """In double quotes, with escapes for line breaks that YAML folds and characters that it does not allow."""
    return "".join(
        char if char.isprintable() else f"\\u{ord(char):04x}" if ord(char) < 1 << 16 else f"\\U{ord(char):08x}"
        for char in json.dumps(text, ensure_ascii=False)
    )
