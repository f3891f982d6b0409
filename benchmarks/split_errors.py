"""Errors of products of split operands beside those of the library's float32, both against float64.

    PYTHONPATH=. python benchmarks/split_errors.py --csv benchmarks/results/split_errors_h100.csv

Needs a GPU of sm_90 and nvcc. Results are 1024 x 1024, sums have `terms` terms, errors are relative Frobenius norms.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from split_times import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Pieces, compiled, product
from torch import Tensor

SIDE = 1024
TERMS = (64, 256, 1024, 4096, 16384, 65536)


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda")


def _student(*shape: int) -> Tensor:
    """Student's t with three degrees of freedom: heavy tails with a variance."""
    squares = sum(_normal(*shape).square() for _ in range(3))
    return _normal(*shape) / (squares / 3).sqrt()


DATA: dict[str, Callable[..., Tensor]] = {
    "normal": _normal,
    "uniform": lambda *shape: 2 * torch.rand(shape, device="cuda") - 1,
    "positive": lambda *shape: torch.rand(shape, device="cuda"),
    "student t, 3": _student,
}


def measure(library: object, draw: Callable[..., Tensor], terms: int) -> Iterator[tuple[str, float, float]]:
    """The name of each product, its error, the library's."""
    x, weight = Pieces(library, draw(SIDE, terms)), Pieces(library, draw(SIDE, terms))
    yield "y", *_errors(FORWARD, x, weight, (SIDE, SIDE, terms), x.values, weight.values.t())
    weight = Pieces(library, draw(terms, SIDE))
    dz = Pieces(library, draw(SIDE, terms), False, weight)
    yield "dx", *_errors(INPUT_GRADIENT, dz, weight, (SIDE, terms, SIDE), dz.values, weight.values)
    x = Pieces(library, draw(terms, SIDE))
    dz = Pieces(library, draw(terms, SIDE), True, x)
    yield "dW", *_errors(WEIGHT_GRADIENT, dz, x, (terms, SIDE, SIDE), dz.values.t(), x.values)


def _errors(
    kind: int, left: Pieces, right: Pieces, sizes: tuple[int, int, int], a: Tensor, b: Tensor
) -> tuple[float, float]:
    found = torch.full((SIDE, SIDE), float("nan"), device="cuda")
    product(kind, left, right, sizes, found)
    exact = a.double() @ b.double()
    return tuple(float((each.double() - exact).norm() / exact.norm()) for each in (found, a @ b))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, required=True)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(1)
    machine = [torch.cuda.get_device_name(), torch.__version__, torch.version.cuda]
    with tempfile.TemporaryDirectory() as directory, options.csv.open("w", newline="") as file:
        library = compiled(directory)
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow("gpu torch cuda data terms product split library".split())
        for name, draw in DATA.items():
            for terms in TERMS:
                for which, mine, theirs in measure(library, draw, terms):
                    writer.writerow([*machine, name, terms, which, f"{mine:.3g}", f"{theirs:.3g}"])
                    print(name, terms, which, f"{mine:.2e} {theirs:.2e}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
