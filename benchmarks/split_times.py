"""How long products of split operands take, by size, beside the library's product in float32.

    PYTHONPATH=. python benchmarks/split_times.py --csv benchmarks/results/split_times_h200.csv

Needs a GPU of sm_90 and nvcc. Times are device times in microseconds: medians of replays of a CUDA graph, so that
small sizes are not the host's. templates/support/product_route.py has its figures from here. err_*: the relative
Frobenius norm of the error of y against float64, on normal data.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import itertools
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from triton.testing import do_bench_cudagraph

SOURCE = Path(__file__).parent.parent / "templates" / "support" / "contraction" / "contraction.cu"
COMPILE = ["nvcc", "-std=c++17", "-DFUSEGEN_SM_90A", "-gencode=arch=compute_90a,code=sm_90a", "-shared"]
ROWS = (16, 64, 128, 256, 512, 1024, 4096)
WIDTHS = (  # channels, input features
    (64, 2048), (256, 4096), (512, 512), (1000, 333), (1024, 1024), (1024, 8192), (2048, 2048), (4096, 4096),
    (8192, 1024), (8192, 8192),
)  # fmt: skip
FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = range(3)  # ProductKind of contraction.h
_REPEAT_MS = 12


class _Layout(ctypes.Structure):
    """PiecesLayout of contraction.h."""

    _fields_ = [("rows", ctypes.c_int64), ("columns", ctypes.c_int64), ("by_columns", ctypes.c_bool)]

    @property
    def halves(self) -> int:
        stride = (self.columns + 7) // 8 * 8
        scales = self.columns if self.by_columns else self.rows
        return 2 * (self.rows * stride + 2 * scales + 2)


class _Product(ctypes.Structure):
    """SplitProduct of contraction.h."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("kind", "rows", "channels", "in_features")),
        *((name, ctypes.c_void_p) for name in ("left", "right", "left_pieces", "right_pieces", "result", "stream")),
        ("row_invariant", ctypes.c_int64),
    ]


class Pieces:
    """A matrix with its pieces. folded: the pieces whose exponents are folded in."""

    def __init__(self, library: ctypes.CDLL, values: Tensor, by_columns: bool = False, folded: Pieces | None = None):
        self.library, self.values, self.folded = library, values, folded
        self.layout = _Layout(*values.shape, by_columns)
        self.data = torch.empty(self.layout.halves, device=values.device, dtype=torch.float16)
        self.split()

    def split(self) -> None:
        other = self.folded
        _check(
            self.library.fusegen_split(
                _pointer(self.values),
                ctypes.byref(self.layout),
                _pointer(other.data) if other else None,
                ctypes.byref(other.layout) if other else None,
                _pointer(self.data),
                _stream(),
            )
        )


def product(kind: int, left: Pieces, right: Pieces, sizes: tuple[int, int, int], result: Tensor) -> None:
    """sizes: rows, channels, input features."""
    operands = (left.values, right.values, left.data, right.data, result)
    call = _Product(kind, *sizes, *(each.data_ptr() for each in operands), _stream().value)
    _check(left.library.fusegen_split_product(ctypes.byref(call)))


def _pointer(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _stream() -> ctypes.c_void_p:
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"CUDA error {status}")


def compiled(directory: str) -> ctypes.CDLL:
    output = f"{directory}/contraction.so"
    subprocess.run([*COMPILE, "-Xcompiler", "-fPIC", "-o", output, str(SOURCE)], check=True)
    return ctypes.CDLL(output)


def _microseconds(call: Callable[[], object]) -> float:
    return 1e3 * do_bench_cudagraph(call, rep=_REPEAT_MS, return_mode="median")


def _error(y: Tensor, exact: Tensor) -> float:
    return float((y.double() - exact).norm() / exact.norm())


def measure(library: ctypes.CDLL, rows: int, channels: int, in_features: int) -> dict[str, float]:
    """One line of the CSV."""
    sizes = (rows, channels, in_features)
    x, weight, dz = (
        torch.randn(shape, device="cuda") for shape in ((rows, in_features), (channels, in_features), (rows, channels))
    )
    of_x, of_weight = Pieces(library, x), Pieces(library, weight)
    for_input, for_weight = Pieces(library, dz, False, of_weight), Pieces(library, dz, True, of_x)
    y, dx, dw = torch.empty_like(dz), torch.empty_like(x), torch.empty_like(weight)
    calls = {
        "library_y": lambda: x @ weight.t(),
        "library_dx": lambda: dz @ weight,
        "library_dw": lambda: dz.t() @ x,
        "split_x": of_x.split,
        "split_weight": of_weight.split,
        "split_dz_by_rows": for_input.split,
        "split_dz_by_columns": for_weight.split,
        "y": lambda: product(FORWARD, of_x, of_weight, sizes, y),
        "dx": lambda: product(INPUT_GRADIENT, for_input, of_weight, sizes, dx),
        "dw": lambda: product(WEIGHT_GRADIENT, for_weight, of_x, sizes, dw),
    }
    found = dict(zip(("rows", "channels", "in_features"), map(float, sizes), strict=True))
    found |= {name: _microseconds(call) for name, call in calls.items()}
    exact = x.double() @ weight.double().t()
    return found | {"err_y": _error(y, exact), "err_library_y": _error(x @ weight.t(), exact)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, required=True)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    machine = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    with tempfile.TemporaryDirectory() as directory, options.csv.open("w", newline="") as file:
        library = compiled(directory)
        writer = csv.writer(file, lineterminator="\n")
        for number, (rows, (channels, in_features)) in enumerate(itertools.product(ROWS, WIDTHS)):
            with torch.cuda.stream(torch.cuda.Stream()):  # graphs are captured on another than the default one
                line = measure(library, rows, channels, in_features)
            if number == 0:
                writer.writerow([*machine, *line])
            writer.writerow([*machine.values(), *(f"{value:.5g}" for value in line.values())])
            file.flush()
            print(" ".join(f"{value:.4g}" for value in line.values()), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
