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


def run(library, rows, dtype=torch.float32, *, ignored=-100, seed=0, losses=None, weights=None):
    """The mean of the kernel, beside that in float64. weights: of the nine channels, in eighths."""
    generator = torch.Generator().manual_seed(rows)
    targets = torch.randint(0, 9, (rows,), generator=generator)
    if losses is None:
        losses = torch.rand(rows, generator=generator).to(dtype)
    losses[targets == ignored] = 0
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    mean, count = Buffer.poisoned((1,), dtype), Buffer.poisoned((1,), wide)
    given = Buffer.from_tensor(losses, readonly=True), Buffer.from_tensor(targets, readonly=True)
    of_channels = None if weights is None else Buffer.from_tensor(weights.to(wide), readonly=True)
    channels = 0 if weights is None else 9
    library.call(
        *("mean_loss", DTYPES.index(dtype), *given, of_channels, rows, channels, ignored, mean, count), seed=seed
    )
    of_rows = torch.ones(9) if weights is None else weights
    counted = of_rows.double()[targets][targets != ignored].sum().item()
    assert count.tensor().item() == counted
    return mean.tensor()[0], losses.double().sum() / counted


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", ROWS)
def test_each_number_of_rows(library, rows, dtype) -> None:
    for ignored in (-100, 3):
        mean, expected = run(library, rows, dtype, ignored=ignored)
        torch.testing.assert_close(mean, expected.to(dtype), rtol=1e-2 if dtype == torch.bfloat16 else 1e-6, atol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_weights_of_targets(library, dtype) -> None:
    for rows in (31, 1025, 5000):
        mean, expected = run(library, rows, dtype, ignored=3, weights=torch.arange(9) / 8)
        torch.testing.assert_close(mean, expected.to(dtype), rtol=1e-2 if dtype == torch.bfloat16 else 1e-6, atol=0)


def test_a_target_that_is_no_channel_has_no_weight(library) -> None:
    losses, targets = Buffer.from_tensor(torch.ones(3)), Buffer.from_tensor(torch.tensor([2, 9, -1]))
    mean, count = (Buffer.poisoned((1,), torch.float32) for _ in range(2))
    weights = Buffer.from_tensor(torch.full((9,), 0.5), readonly=True)
    library.call("mean_loss", 0, losses, targets, weights, 3, 9, -100, mean, count)
    assert count.tensor().item() == 0.5


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
