"""The model returns, bit by bit, what a GPU returned: benchmarks/record_split.py wrote data/tensor_cores.json."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from fusegen.build.toolchain import find_toolchain
from fusegen.numerics.pieces import split
from fusegen.numerics.products import split_product
from fusegen.numerics.tensor_core import step

ROOT = Path(__file__).parents[2]
RECORDED = json.loads((Path(__file__).parent / "data" / "tensor_cores.json").read_text())


def words(rows: list[str], dtype: type[np.floating]) -> np.ndarray:
    """Numbers of a string of bits in hexadecimal for each row."""
    digits = 2 * np.dtype(dtype).itemsize
    bits = [[int(row[at : at + digits], 16) for at in range(0, len(row), digits)] for row in rows]
    return np.array(bits, f"u{digits // 2}").view(dtype)


def same_bits(found: np.ndarray, recorded: np.ndarray) -> None:
    assert found.dtype == recorded.dtype == np.float32
    np.testing.assert_array_equal(found.view(np.uint32), recorded.view(np.uint32))


@pytest.mark.parametrize("recorded", RECORDED["steps"], ids=lambda recorded: recorded["name"])
def test_steps(recorded: dict) -> None:
    left, right = words(recorded["left"], np.float16), words(recorded["right"], np.float16)
    before, after = words(recorded["before"], np.float32), words(recorded["after"], np.float32)
    assert (left.shape, right.shape, after.shape) == ((64, 16), (8, 16), (64, 8))
    same_bits(step(left, right, before), after)


def operand(table: np.ndarray, places: dict, rows: int, depth: int) -> np.ndarray:
    index = np.arange(depth) * places["stride"] + np.arange(rows)[:, None] * places["shift"] + places["start"]
    return table[index % len(table)]


@pytest.mark.parametrize(
    "recorded",
    RECORDED["products"],
    ids=lambda recorded: "-".join(str(recorded[k]) for k in ("table", "depth", "chunk")),
)
def test_products(recorded: dict) -> None:
    [table] = words([RECORDED["tables"][recorded["table"]]], np.float32)
    left, right = (
        split(operand(table, RECORDED[side], rows, recorded["depth"])) for side, rows in (("left", 64), ("right", 8))
    )
    planes = b"".join(plane.tobytes() for pieces in (left, right) for plane in (pieces.high, pieces.low))
    assert hashlib.sha256(planes).hexdigest() == recorded["pieces"]
    same_bits(split_product(left, right, recorded["chunk"]), words(recorded["result"], np.float32))


def test_all_kinds_were_recorded() -> None:
    assert [each["name"] for each in RECORDED["steps"]] == ["alignment", "extremes", "cancellation", "exponents"]
    products = [(each["table"], each["depth"], each["chunk"]) for each in RECORDED["products"]]
    assert any(chunk < depth and depth % chunk for _, depth, chunk in products)
    assert any(chunk >= depth for _, depth, chunk in products)
    assert {table for table, _, _ in products} == {"normal", "positive", "wide"}


@pytest.mark.nvcc
def test_what_records_compiles(tmp_path: Path) -> None:
    command = [str(find_toolchain().nvcc.path), "-cubin", "-arch=sm_90a", "-o", str(tmp_path / "record_split.cubin")]
    done = subprocess.run([*command, str(ROOT / "benchmarks" / "record_split.cu")], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
