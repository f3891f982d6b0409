"""Clusters are asked for only where every GPU that a file is compiled for has them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fusegen.build.toolchain import find_toolchain

pytestmark = pytest.mark.nvcc

SUPPORT = Path(__file__).resolve().parents[2] / "templates" / "support"


@pytest.mark.parametrize("capabilities, most", [((90,), 8), ((90, 100), 8), ((80,), 1), ((80, 90), 1)])
def test_blocks_of_a_cluster_by_the_targets_of_a_build(
    capabilities: tuple[int, ...], most: int, tmp_path: Path
) -> None:
    """Whatever the spec's targets are: `--target` may name others."""
    source = tmp_path / "most.cu"
    source.write_text(f'#include "launch.cuh"\nstatic_assert(fusegen::most_cluster(8) == {most});\n', encoding="utf-8")
    targets = [f"-gencode=arch=compute_{each},code=sm_{each}" for each in capabilities]
    command = [find_toolchain().nvcc.path, "-std=c++17", f"-I{SUPPORT}", *targets, "-c", source, "-o", tmp_path / "o"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
