"""The figures of check_full_size.py as CSV, and the page that is written from them."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from fusegen.verify.policy import Comparison

_FIGURES = ("fused_largest", "eager_largest", "bound_largest", "fused_norm", "eager_norm", "bound_norm")
_HEAD = """# Numerics at full size

Measured by `benchmarks/check_full_size.py` on {device}. `benchmarks/check_full_size.py --render CSV` writes
this page.

Every error is against the original module in double precision, on the same data and the same parameters,
divided by the largest magnitude of the reference (where a gradient cancels to nearly nothing: of the terms
that cancel). A fused error may be at most twice eager's in the same dtype, plus one ulp of the dtype that
is computed in, plus the rounding of a float32 sum of the reduction's length; the same is asked of the
relative Frobenius norm, which is in the CSV only. TF32 is off. Norm parameters, running statistics and
inputs are random. Of the optimiser steps the third is shown, by how far each parameter has moved; eager's
error there is the worst of nine runs that differ by rounding alone (rows in another order, inputs an ulp up
or down), because training amplifies which side of a kink or of zero a single element falls on.
"""


@dataclass(frozen=True)
class Row:
    """One line of the CSV."""

    config: str
    shape: str
    dtype: str
    mode: str
    quantity: str
    fused_largest: float
    eager_largest: float
    bound_largest: float
    fused_norm: float
    eager_norm: float
    bound_norm: float
    ok: bool
    note: str
    device: str = ""

    @classmethod
    def of(cls, config: str, shape: str, dtype: str, mode: str, item: Comparison) -> Row:
        """A comparison with where it was made."""
        errors = (item.fused, item.eager, item.bound)
        figures = (*(e.largest for e in errors), *(e.norm for e in errors))
        return cls(config, shape, dtype, mode, item.name, *figures, item.ok, item.note)


def write_rows(rows: Iterable[Row], path: Path, device: str) -> None:
    """All rows as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Row)], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            values = asdict(row) | {"device": device}
            writer.writerow(values | {name: f"{values[name]:.3e}" for name in _FIGURES})


def read_rows(path: Path) -> list[Row]:
    """What write_rows wrote."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Row(**(line | {name: float(line[name]) for name in _FIGURES} | {"ok": line["ok"] == "True"}))
            for line in csv.DictReader(file)
        ]


def summary(rows: list[Row]) -> str:
    """Two figures in one line."""
    failed = sum(not row.ok for row in rows)
    return f"{len(rows)} comparisons, {failed} failed"


def write_page(rows: list[Row], path: Path) -> int:
    """The markdown page: the full sizes in detail, the rest by its worst. Returns 0, an exit status."""
    full, rest = _split(rows)
    parts = [_HEAD.format(device=rows[0].device if rows else "nothing"), f"{summary(rows)}.\n"]
    failed = [row for row in rows if not row.ok]
    if failed:
        parts += ["## Failed\n", _detail(failed)]
    for config in dict.fromkeys(row.config for row in full):
        mine = [row for row in full if row.config == config and not row.quantity.startswith(("step 1", "step 2"))]
        parts += [f"## {config}, {mine[0].shape}\n", _detail(mine)]
    if rest:
        text = "For each chain, shape, dtype and mode: the quantity that comes closest to its bound.\n"
        parts += ["## Other shapes and chains\n", text, _detail(_worst(rest))]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts), encoding="utf-8")
    return 0


def _split(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    # The full size of a chain is the largest of its shapes that has figures for training steps.
    def volume(row: Row) -> int:
        product = 1
        for extent in row.shape.split("x"):
            product *= int(extent)
        return product

    largest: dict[str, int] = {}
    for row in rows:
        largest[row.config] = max(largest.get(row.config, 0), volume(row))
    enough = 1 << 34  # any of the five seed configurations has more multiplications, no mid size has
    full = [row for row in rows if volume(row) == largest[row.config] >= enough]
    chosen = {id(row) for row in full}
    return full, [row for row in rows if id(row) not in chosen]


def _nearness(row: Row) -> float:
    """How near the worse of the two measures comes to its bound."""
    pairs = ((row.fused_largest, row.bound_largest), (row.fused_norm, row.bound_norm))
    return max(error / limit if limit else 0.0 for error, limit in pairs)


def _worst(rows: list[Row]) -> list[Row]:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.config, row.shape, row.dtype, row.mode), []).append(row)
    return [max(group, key=lambda row: (not row.ok, _nearness(row))) for group in groups.values()]


def _detail(rows: list[Row]) -> str:
    lines = [
        "| chain, size | dtype | mode | quantity | fused | eager | bound | ok |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        verdict = ("yes" if row.ok else "**NO**") + (f" ({row.note.replace('|', '/')})" if row.note else "")
        if row.bound_largest:
            figures = f"{row.fused_largest:.1e} | {row.eager_largest:.1e} | {row.bound_largest:.1e}"
        else:
            figures = "| | "
        place = f"{row.config} {row.shape} | {row.dtype} | {row.mode} | {row.quantity}"
        lines.append(f"| {place} | {figures} | {verdict} |")
    return "\n".join(lines) + "\n"
