"""On which devices the launchers let a kernel's launch overlap with the end of the kernel before."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer
from tests.emulate.building import compiled_shapes

SOURCE = """
#include "../support/launch.cuh"

extern "C" int waits(int64_t* found, int64_t compiled, int64_t capability) {
  *found = fusegen::code_waits(int(compiled), int(capability));
  return cudaGetLastError();
}
"""


@pytest.fixture(scope="module")
def waits(tmp_path_factory, emulation_cache):
    library = compiled_shapes(SOURCE, tmp_path_factory.mktemp("overlap"), emulation_cache)
    found = Buffer.poisoned([1], torch.int64)

    def waits(compiled, capability):
        library.call("waits", found, compiled, capability)
        return bool(found.tensor().item())

    return waits


@pytest.mark.parametrize(
    "compiled, capability, expected",
    [
        (90, 90, True),
        (100, 100, True),
        (100, 103, True),
        (103, 100, False),  # which that device does not run
        (80, 80, False),
        (80, 90, False),  # compiled again by the driver, of code without a wait
        (86, 89, False),
        (90, 100, False),
        (90, 0, False),  # no device
    ],
)
def test_only_code_that_waits_may_begin_early(waits, compiled, capability, expected):
    assert waits(compiled, capability) is expected
