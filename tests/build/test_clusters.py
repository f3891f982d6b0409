"""Whether code exchanges values in clusters follows from what it is compiled for, and from the GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fusegen.build.toolchain import find_toolchain

pytestmark = pytest.mark.nvcc

SUPPORT = Path(__file__).resolve().parents[2] / "templates" / "support"


@pytest.mark.parametrize(
    "compiled, with_clusters, without",
    [((90,), (90, 100), ()), ((80,), (), (80, 90)), ((80, 90), (90,), (80, 100))],
)
def test_clusters_by_the_targets_of_a_build(
    compiled: tuple[int, ...], with_clusters: tuple[int, ...], without: tuple[int, ...], tmp_path: Path
) -> None:
    """Whatever the spec's targets are: `--target` may name others."""
    source = tmp_path / "clusters.cu"
    claims = [f"fusegen::kernels_have_clusters({each})" for each in with_clusters]
    claims += [f"!fusegen::kernels_have_clusters({each})" for each in without]
    asserted = "".join(f"static_assert({claim});\n" for claim in claims)
    source.write_text(f'#include "launch.cuh"\n{asserted}', encoding="utf-8")
    targets = [f"-gencode=arch=compute_{each},code=sm_{each}" for each in compiled]
    command = [find_toolchain().nvcc.path, "-std=c++17", f"-I{SUPPORT}", *targets, "-c", source, "-o", tmp_path / "o"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
