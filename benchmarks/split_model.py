"""Errors of fp32_split beside SGEMM's, by the model of fusegen/numerics: which data and which K it suits.

    PYTHONPATH=. python benchmarks/split_model.py --out DIR     writes DIR/split_model.csv; two minutes on a CPU
    PYTHONPATH=. python benchmarks/split_model.py --table CSV   prints what is in it

`chunk` elements of K are added up on the tensor core before they are added to a float32 sum outside of it; "all": they
never are. SGEMM is one fused multiply-add after the other. error: relative, of Frobenius norms, against float64.
worst: the largest error of an element, as a fraction of the sum of its products' magnitudes.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fusegen.numerics.pieces import split
from fusegen.numerics.products import single_product, split_product

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
DATA: dict[str, Draw] = {
    "normal": lambda source, shape: source.standard_normal(shape),
    "uniform": lambda source, shape: source.uniform(-1, 1, shape),
    "positive": lambda source, shape: np.abs(source.standard_normal(shape)),
    "student t, 3": lambda source, shape: source.standard_t(3, shape),
    "Cauchy": lambda source, shape: source.standard_cauchy(shape),
}
DEPTHS = tuple(2**n for n in range(6, 17))
CHUNKS = (16, 32, 64, 128, 256, 512, 1024)
SIDE = 24  # rows of x and of W


class Row(NamedTuple):
    """method: "sgemm", or the chunk of K of fp32_split."""

    data: str
    depth: int
    method: str
    error: float
    worst: float


def measure(data: str, depth: int, side: int) -> Iterator[Row]:
    """All methods on the same side x depth operands."""
    source = np.random.default_rng(depth)
    left, right = (DATA[data](source, (side, depth)).astype(np.float32) for _ in range(2))
    a, b = left.astype(np.float64), right.astype(np.float64)
    exact, magnitudes = a @ b.T, np.abs(a) @ np.abs(b).T
    pieces = split(left), split(right)
    found = {"sgemm": single_product(left, right)}
    found |= {str(chunk): split_product(*pieces, chunk) for chunk in CHUNKS if chunk < depth}
    found["all"] = split_product(*pieces, depth)
    for method, result in found.items():
        off = np.abs(result - exact)
        error = np.linalg.norm(off) / np.linalg.norm(exact)
        yield Row(data, depth, method, float(f"{error:.3e}"), float(f"{np.max(off / magnitudes):.3e}"))


def write(rows: Sequence[Row], path: Path) -> None:
    """With a line of names."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([Row._fields, *((*row[:3], *(f"{x:.3e}" for x in row[3:])) for row in rows)])


def read(path: Path) -> list[Row]:
    """What write() wrote."""
    with path.open(newline="") as file:
        return [
            Row(r["data"], int(r["depth"]), r["method"], float(r["error"]), float(r["worst"]))
            for r in csv.DictReader(file)
        ]


def table(rows: Sequence[Row]) -> str:
    """A line for each kind of data and K; a star where the error is larger than SGEMM's."""
    methods = ["sgemm", *map(str, CHUNKS), "all"]
    lines = [f"{'data':14}{'K':>6}" + "".join(f"{method:>10}" for method in methods)]
    for data, depth in dict.fromkeys((row.data, row.depth) for row in rows):
        errors = {row.method: row.error for row in rows if (row.data, row.depth) == (data, depth)}
        cells = []
        for method in methods:
            star = "*" if errors.get(method, 0) > errors["sgemm"] else " "
            cells.append(f"{errors[method]:9.1e}{star}" if method in errors else " " * 10)
        lines.append(f"{data:14}{depth:6}" + "".join(cells).rstrip())
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--out", type=Path, help="folder for split_model.csv")
    wanted.add_argument("--table", type=Path, metavar="CSV", help="only print it")
    options = parser.parse_args()
    if options.table:
        print(table(read(options.table)))
        return
    rows = [row for data in DATA for depth in DEPTHS for row in measure(data, depth, SIDE)]
    options.out.mkdir(parents=True, exist_ok=True)
    write(rows, options.out / "split_model.csv")
    print(table(rows))


if __name__ == "__main__":
    main()
