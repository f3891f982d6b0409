"""The mean of the losses of rows that count."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer
from tests.kernels.building import compiled

SOURCE = '#include "mean_loss_programs.cuh"\n'
DTYPES = (torch.float32, torch.bfloat16, torch.float64)
ROWS = (1, 31, 1024, 1025, 5000, 8192)


@pytest.fixture(scope="module")
def library(tmp_path_factory, emulation_cache):
    return compiled(SOURCE, tmp_path_factory.mktemp("programs"), emulation_cache, checked=True)


def run(library, rows, dtype=torch.float32, *, ignored=-100, seed=0, losses=None):
    """The mean and the count of the kernel, beside those in float64."""
    generator = torch.Generator().manual_seed(rows)
    targets = torch.randint(0, 9, (rows,), generator=generator)
    if losses is None:
        losses = torch.rand(rows, generator=generator).to(dtype)
    losses[targets == ignored] = 0
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    mean, count = Buffer.poisoned((1,), dtype), Buffer.poisoned((1,), wide)
    given = Buffer.from_tensor(losses, readonly=True), Buffer.from_tensor(targets, readonly=True)
    library.call("mean_loss", DTYPES.index(dtype), *given, rows, ignored, mean, count, seed=seed)
    counted = int((targets != ignored).sum())
    assert count.tensor().item() == counted
    return mean.tensor()[0], losses.double().sum() / counted


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", ROWS)
def test_each_number_of_rows(library, rows, dtype) -> None:
    for ignored in (-100, 3):
        mean, expected = run(library, rows, dtype, ignored=ignored)
        torch.testing.assert_close(mean, expected.to(dtype), rtol=1e-2 if dtype == torch.bfloat16 else 1e-6, atol=0)


def test_the_same_bits_again(library) -> None:
    first, *others = (run(library, 5000, seed=seed)[0] for seed in range(3))
    assert all(torch.equal(first, each) for each in others)


def test_no_row_that_counts_and_no_number(library) -> None:
    losses = torch.zeros(40)
    assert run(library, 40, losses=losses, ignored=-100)[0] == 0
    losses[17] = torch.nan
    assert run(library, 40, losses=losses)[0].isnan()
    generator = torch.Generator().manual_seed(1)
    only = int(torch.randint(0, 9, (1,), generator=generator))
    assert run(library, 1, ignored=only)[0].isnan()
