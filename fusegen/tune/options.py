"""The options of `fusegen tune`, read and checked before anything is measured."""

from __future__ import annotations

from dataclasses import dataclass

import typer

from fusegen.bench.names import PRECISIONS
from fusegen.bench.options import names
from fusegen.spec.base import MAX_SIZE

_DTYPES = {name: precision.dtype for name, precision in PRECISIONS.items() if precision.is_dtype}


@dataclass(frozen=True)
class Options:
    """What is measured. dtypes: of the activations; None for those of the spec. rows: None for some about the typical
    number."""

    dtypes: tuple[str, ...] | None = None
    rows: tuple[int, ...] | None = None


def read(dtypes: str | None, rows: str | None) -> Options:
    """The options as typed, where lists are separated by commas. Raises BadParameter."""
    chosen = None if dtypes is None else tuple(_DTYPES[name] for name in names(dtypes, _DTYPES, "--dtypes"))
    return Options(chosen, None if rows is None else _rows(rows))


def _rows(text: str) -> tuple[int, ...]:
    parts = dict.fromkeys(part.strip() for part in text.split(","))
    wrong = [part for part in parts if not (part.isdecimal() and 0 < int(part) <= MAX_SIZE)]
    if wrong:
        raise typer.BadParameter(f"no number of rows: {', '.join(wrong)}; give such as 64,1024", param_hint="--rows")
    return tuple(sorted(map(int, parts)))
