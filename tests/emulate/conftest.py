"""Compiles the sources that the tests have inline."""

import shutil
from pathlib import Path

import pytest

from fusegen.emulate import compile_kernels
from tests.emulate.row_shapes import RowShapes

ROOT = Path(__file__).resolve().parents[2]
PRELUDE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../support/launch.cuh"
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Where build() writes: a directory for each name."""
    return tmp_path_factory.mktemp("generated")


@pytest.fixture(scope="module")
def build(sources, emulation_cache):
    (sources / "support").mkdir()
    for header in ("launch.cuh", "explain.cuh"):
        shutil.copy(ROOT / "templates/support" / header, sources / "support")

    def build(text, name="kernels", **kwargs):
        source = sources / name / "kernels.cu"
        source.parent.mkdir(exist_ok=True)
        source.write_text(PRELUDE + text)
        return compile_kernels(source, cache=emulation_cache, **kwargs)

    return build


@pytest.fixture(scope="session")
def shape(tmp_path_factory, emulation_cache) -> RowShapes:
    return RowShapes(tmp_path_factory.mktemp("shapes"), emulation_cache)
