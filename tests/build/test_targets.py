"""The targets that a spec may have are nvcc's, and what the support headers ask of a GPU the oldest of them has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fusegen.build.toolchain import find_toolchain
from fusegen.plan.launches.devices import DEVICES

pytestmark = pytest.mark.nvcc

SUPPORT = Path(__file__).resolve().parents[2] / "templates" / "support"
# What is written as instructions by their names, but for clusters, which kernels for older GPUs do not instantiate.
SOURCE = """
#include "activations.cuh"
#include "l2_steps.cuh"
using namespace fusegen;
__global__ void all(float* x, const uint4* four, const uint2* two, unsigned* counter) {
  wait_for_earlier_kernels();
  const uint4 a = load_word_to_keep(four);
  const uint2 b = load_word_to_keep(two);
  count_part(counter);
  x[0] = maximum(x[0], x[1]) + minimum(x[2], x[3]) + sigmoid<float>(x[4]) + exponential<char16_t>(x[5]);
  x[1] = float(a.x + b.x);
}
"""


def test_nvcc_knows_every_target() -> None:
    done = subprocess.run([find_toolchain().nvcc.path, "--list-gpu-code"], capture_output=True, text=True, check=True)
    assert set(DEVICES) <= set(done.stdout.split())


def test_headers_compile_for_the_oldest_target(tmp_path: Path) -> None:
    source = tmp_path / "all.cu"
    source.write_text(SOURCE, encoding="utf-8")
    number = next(iter(DEVICES)).removeprefix("sm_")
    target = f"-gencode=arch=compute_{number},code=sm_{number}"
    command = [find_toolchain().nvcc.path, "-std=c++17", f"-I{SUPPORT}", target, "-c", source, "-o", tmp_path / "o"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
