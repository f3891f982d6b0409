"""Each mistake in a copy of the tile kernel is caught, and by what should catch it."""

from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate import EmulatedLibrary, EmulationError, compile_kernels  # noqa: E402
from tests.emulate.mutants.mutant import with_mutants  # noqa: E402
from tests.emulate.mutants.scenario import choose  # noqa: E402
from tests.emulate.mutants.tiles import TILES  # noqa: E402
from tests.kernels.building import written  # noqa: E402
from tests.kernels.test_tile import SOURCE, run  # noqa: E402

MUTANTS = dict(enumerate(TILES, start=1))
SEEDS = range(2)
SCENARIOS = {
    "a tile": {"batch": 2, "positions": 130, "channels": 12},
    "odd": {"batch": 1, "positions": 1049, "channels": 12},
    "several tiles": {"batch": 9, "positions": 400, "channels": 32, "blocks": 1},
}


@pytest.fixture(scope="module")
def library(tmp_path_factory, emulation_cache) -> EmulatedLibrary:
    source = written('extern "C" { int fusegen_mutant = 0; }\n' + SOURCE, tmp_path_factory.mktemp("tiles"))
    for name in {mutant.file for mutant in TILES}:
        path = source.parents[1] / "support" / name
        chosen = [each for each in MUTANTS.items() if each[1].file == name]
        path.write_text(with_mutants(path.read_text(encoding="utf-8"), chosen), encoding="utf-8")
    return compile_kernels(source, cache=emulation_cache)


def verdict(library: EmulatedLibrary, scenario: str, number: int, seed: int) -> str:
    choose(library, number)
    try:
        run(library, **SCENARIOS[scenario], seed=seed)
    except (EmulationError, AssertionError) as error:
        return str(error)
    finally:
        choose(library, 0)
    return "fine"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_copy_without_a_mutant_is_right(scenario: str, library: EmulatedLibrary) -> None:
    for seed in SEEDS:
        assert verdict(library, scenario, 0, seed) == "fine"


@pytest.mark.parametrize("number", MUTANTS, ids=[mutant.name for mutant in TILES])
def test_mutant_is_caught(number: int, library: EmulatedLibrary) -> None:
    mutant = MUTANTS[number]
    for seed in SEEDS:
        found = verdict(library, mutant.run, number, seed)
        assert re.search(mutant.caught, found), f"seed {seed}: {found}"
        assert re.search(rf"[ :]{mutant.kernel}[<(]", found), f"seed {seed}: {found}"
