"""The toy programs of each kernel, compiled for a GPU: no chain is needed to see that a kernel compiles."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fusegen.build.toolchain import find_toolchain
from tests.kernels import test_column, test_image_copy, test_l2, test_mean_loss, test_pointwise, test_row, test_tile
from tests.kernels.building import written

pytestmark = pytest.mark.nvcc

SOURCES = {
    "column": test_column.SOURCE,
    "image_copy": test_image_copy.SOURCE,
    "l2": test_l2.SOURCE,
    "mean_loss": test_mean_loss.SOURCE,
    "pointwise": test_pointwise.SOURCE,
    "row": test_row.SOURCE,
    "tile": test_tile.SOURCE,
}
NAMES = {kernel: (kernel,) for kernel in SOURCES} | {"tile": ("tile", "plane")}


@pytest.mark.parametrize("kernel", SOURCES)
def test_a_kernel_compiles_for_a_gpu_by_itself(kernel: str, tmp_path: Path) -> None:
    """Without --expt-relaxed-constexpr, which hides a host function that a kernel calls, and with no warning."""
    source = written(SOURCES[kernel], tmp_path)
    # -O0: it is the front end that checks, and optimising takes three times as long.
    options = ["-std=c++17", "-arch=compute_90", "-ptx", "-Xcicc", "-O0", "-Werror", "all-warnings"]
    command = [find_toolchain().nvcc.path, *options, source, "-o", tmp_path / "kernels.ptx"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "kernels.ptx").read_text(encoding="utf-8")
    assert all(f"{name}_kernel" in text for name in NAMES[kernel])
