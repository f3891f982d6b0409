"""Each mistake in a copy of the kernel that has rows in shared memory is caught, and by what should catch it."""

from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate import EmulationError  # noqa: E402
from tests.emulate.mutants.scenario import choose  # noqa: E402
from tests.emulate.mutants.shared_rows import SHARED_ROWS  # noqa: E402
from tests.emulate.shared_rows import SharedRows  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

MUTANTS = dict(enumerate(SHARED_ROWS, start=1))
SEEDS = range(2)


@pytest.fixture(scope="module")
def chain(tmp_path_factory, emulation_cache) -> SharedRows:
    return SharedRows(
        "no_sums_of_columns", 6000, tmp_path_factory.mktemp("broken_rows"), emulation_cache, mutants=MUTANTS
    )


def verdict(chain: SharedRows, number: int, seed: int) -> str:
    """Of clusters with several rows each, the last of whose threads have less than others."""
    choose(chain.library, number)
    try:
        chain.check(9, 701, seeds=(seed,))
    except (EmulationError, AssertionError) as error:
        return str(error)
    finally:
        choose(chain.library, 0)
    return "fine"


def test_the_copy_without_a_mutant_is_right(chain: SharedRows) -> None:
    assert min(chain.clusters(9, 701)) > 1
    for seed in SEEDS:
        assert verdict(chain, 0, seed) == "fine"


@pytest.mark.parametrize("number", MUTANTS, ids=[mutant.name for mutant in SHARED_ROWS])
def test_mutant_is_caught(number: int, chain: SharedRows) -> None:
    for seed in SEEDS:
        found = verdict(chain, number, seed)
        assert re.search(MUTANTS[number].caught, found), f"seed {seed}: {found}"
