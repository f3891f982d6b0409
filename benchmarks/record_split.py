"""What Hopper's tensor cores return, bit by bit: the numbers that tests/numerics compare fusegen/numerics with.

    python3 benchmarks/record_split.py DIR     on a GPU of sm_90, with nvcc: writes DIR/tensor_cores.json

Steps are single instructions, wgmma.m64n8k16, on 64 rows, 8 columns and 512 accumulators that were thought out.
Products are whole ones: split, accumulation with and without promotion, undoing the scales. Element k of a row is
element (k * stride + row * shift + start) of a table, modulo its length. Bits are in hexadecimal.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import random
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROWS, COLUMNS, DEPTH = 64, 8, 16  # of the instruction
HERE = Path(__file__).parent
COMPILE = ["nvcc", "-O2", "-shared", "-Xcompiler", "-fPIC", "-cudart", "static"]
COMPILE += ["-gencode=arch=compute_90a,code=sm_90a"]
LENGTH = 509  # of a table: a prime, so that rows are different
LEFT = {"stride": 1, "shift": 37, "start": 0}
RIGHT = {"stride": 5, "shift": 211, "start": 3}
Step = tuple[np.ndarray, np.ndarray, np.ndarray]


def alignment(source: random.Random) -> Step:
    """One large product and others that are smaller by 2^10 to 2^39: which of their bits remain."""
    left = np.empty((ROWS, DEPTH))
    right = np.empty((COLUMNS, DEPTH))
    for m in range(ROWS):
        left[m] = (1 + 3 * (m // 16) / 8) * 2.0 ** -(10 + m % 16)
        left[m, m % DEPTH] = (1, -1, 1.9990234375, 1.5)[m // 16]
    for n in range(COLUMNS):
        right[n] = [source.choice((1, -1)) * 2.0 ** (-2 * n) for _ in range(DEPTH)] if n else 1
        right[n, source.randrange(DEPTH)] = 1.5 if n % 2 else 1
    before = np.array([[source.choice((0.0, 1.0, -1.0, 1 + 2.0**-23, -(2.0**-9)))] * COLUMNS for _ in range(ROWS)])
    return left, right, before


def extremes(source: random.Random) -> Step:
    """Zeros of both signs, subnormal numbers, the largest ones."""
    half = [0.0, -0.0, 2.0**-24, 1023 * 2.0**-24, 2.0**-14, 2.0**-7, 1.0, 1 + 2.0**-10, 2 - 2.0**-10, 2.0**15, 65504.0]
    single = [0.0, -0.0, 2.0**-149, 2.0**-126, 2.0**-48, 2.0**-24, 1 + 2.0**-23, 2.0**24, 2.0**33 - 2.0**9, 2.0**127]

    def draw(values: list[float], *shape: int) -> np.ndarray:
        return np.array([source.choice((1, -1)) * source.choice(values) for _ in range(int(np.prod(shape)))]).reshape(
            shape
        )

    left, right, before = draw(half, ROWS, DEPTH), draw(half, COLUMNS, DEPTH), draw(single, ROWS, COLUMNS)
    for m in range(ROWS // 2):  # few products that are not zero: the accumulator and a subnormal number by themselves
        keep = np.arange(DEPTH) % DEPTH < m % 4
        left[m] = np.where(keep, draw(half[2:4], DEPTH) if m % 8 < 4 else left[m], 0)
    left[0], before[0, 0] = np.copysign(0, -right[0]), -0.0  # nothing but negative zeros
    return left, right, before


def cancellation(source: random.Random) -> Step:
    """Products that cancel each other, and accumulators that cancel the products up to a few bits."""
    left = np.array([[source.gauss(0, 1) for _ in range(DEPTH)] for _ in range(ROWS)])
    right = np.array([[source.gauss(0, 1) for _ in range(DEPTH)] for _ in range(COLUMNS)])
    right[::2, 1::2] = right[::2, ::2]
    for m in range(0, ROWS, 2):
        left[m, 1::2] = -left[m, ::2]
        if m % 4 == 0:
            left[m, source.randrange(DEPTH)] *= 1 + source.choice((0, 2.0**-9, 2.0**-13))
    exact = left.astype(np.float16).astype(float) @ right.astype(np.float16).astype(float).T
    factor = [source.choice((0, -1, 1 + 2.0**-20, -1 - 2.0**-22, -1 + 2.0**-24)) for _ in range(exact.size)]
    return left, right, exact * np.array(factor).reshape(exact.shape)


def exponents(source: random.Random) -> Step:
    """Magnitudes of all sizes, in products and accumulators."""

    def draw(rows: int, columns: int, lowest: int, highest: int) -> np.ndarray:
        flat = [source.uniform(-2, 2) * 2.0 ** source.randint(lowest, highest) for _ in range(rows * columns)]
        return np.array(flat).reshape(rows, columns)

    return draw(ROWS, DEPTH, -20, 14), draw(COLUMNS, DEPTH, -10, 10), draw(ROWS, COLUMNS, -30, 30)


TABLES: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda source: source.gauss(0, 1),
    "positive": lambda source: source.random(),
    "wide": lambda source: source.choice((0, 1, 1, 1)) * source.gauss(0, 1) * 2.0 ** source.randint(-30, 0),
}
# Table, elements of K, chunk of K. The last chunks of the second and the fourth one are short.
PRODUCTS = (("normal", 2048, 64), ("positive", 2000, 256), ("positive", 2048, 2048), ("wide", 1328, 64))


def words(values: np.ndarray) -> list[str]:
    """A string for each row."""
    bits = np.ascontiguousarray(values).view(f"u{values.itemsize}")
    return ["".join(f"{each:0{2 * values.itemsize}x}" for each in row) for row in bits]


def pointer(values: np.ndarray) -> ctypes.c_void_p:
    """Of a contiguous array that its caller keeps."""
    assert values.flags.c_contiguous
    return ctypes.c_void_p(values.ctypes.data)


def check(status: int) -> None:
    """Of a call of the library."""
    if status:
        raise SystemExit(f"CUDA error {status}")


def compare(name: str, result: np.ndarray, exact: np.ndarray, scale: np.ndarray, most: float) -> None:
    """Ends the run where operands were read from wrong places: the error is that of another product then."""
    error = float(np.max(np.abs(result - exact) / (scale + 2.0**-100)))
    print(f"{name}: error {error:.2e} of the sum of magnitudes")
    if not error < most:
        raise SystemExit("this is no rounding error")


def record_step(library: ctypes.CDLL, make: Callable[[random.Random], Step]) -> dict:
    """Operands, accumulators and results of one instruction."""
    left, right, before = make(random.Random(make.__name__))
    left, right = left.astype(np.float16), right.astype(np.float16)
    before = before.astype(np.float32)
    after = np.empty_like(before)
    check(library.record_steps(1, *(pointer(each) for each in (left, right, before, after))))
    a, b, c = (each.astype(float) for each in (left, right, before))
    # A subnormal factor may count as fp16's smallest normal number does.
    magnitudes = np.maximum(np.abs(a), 2.0**-14) @ np.maximum(np.abs(b), 2.0**-14).T + np.abs(c)
    compare(make.__name__, after, a @ b.T + c, magnitudes, 2.0**-20)
    named = {"left": left, "right": right, "before": before, "after": after}
    return {"name": make.__name__, **{name: words(each) for name, each in named.items()}}


def record_product(library: ctypes.CDLL, name: str, table: np.ndarray, depth: int, chunk: int) -> dict:
    """The result of a product, and a digest of the pieces: high and low ones of left, then of right."""
    operands = []
    for count, places in ((ROWS, LEFT), (COLUMNS, RIGHT)):
        rows, k = np.arange(count)[:, None], np.arange(depth)
        operands.append(table[(k * places["stride"] + rows * places["shift"] + places["start"]) % len(table)])
    pieces = np.empty(2 * (ROWS + COLUMNS) * depth, np.float16)
    result = np.empty((ROWS, COLUMNS), np.float32)
    [left, right] = [np.ascontiguousarray(each) for each in operands]
    numbers = (ctypes.c_int64(depth), ctypes.c_int64(chunk))
    check(library.record_product(pointer(left), pointer(right), *numbers, pointer(pieces), pointer(result)))
    a, b = left.astype(float), right.astype(float)
    compare(f"{name} {depth} {chunk}", result, a @ b.T, np.abs(a) @ np.abs(b).T, 2.0**-12)
    digest = hashlib.sha256(pieces.tobytes()).hexdigest()
    return {"table": name, "depth": depth, "chunk": chunk, "pieces": digest, "result": words(result)}


def device() -> str:
    """The GPU and its driver."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for tensor_cores.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record_split.so"
        subprocess.run([*COMPILE, "-o", str(path), str(HERE / "record_split.cu")], check=True)
        library = ctypes.CDLL(str(path))
    steps = [record_step(library, make) for make in (alignment, extremes, cancellation, exponents)]
    tables = {}
    for name, draw in TABLES.items():
        source = random.Random(name)
        tables[name] = np.array([draw(source) for _ in range(LENGTH)], np.float32)
    products = [record_product(library, name, tables[name], *numbers) for name, *numbers in PRODUCTS]
    found = {"device": device(), "steps": steps, "left": LEFT, "right": RIGHT}
    found["tables"] = {name: words(each[None])[0] for name, each in tables.items()}
    found["products"] = products
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "tensor_cores.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
