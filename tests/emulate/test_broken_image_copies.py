"""Each mistake in a copy of the kernel that copies images is caught, and by what should catch it."""

from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate import EmulatedLibrary, EmulationError, compile_kernels  # noqa: E402
from tests.emulate.mutants.image_copies import IMAGE_COPIES  # noqa: E402
from tests.emulate.mutants.mutant import with_mutants  # noqa: E402
from tests.emulate.mutants.scenario import choose  # noqa: E402
from tests.kernels import test_image_padding as padding  # noqa: E402
from tests.kernels.building import written  # noqa: E402
from tests.kernels.test_image_copy import SOURCE, run  # noqa: E402

MUTANTS = dict(enumerate(IMAGE_COPIES, start=1))
SEEDS = range(2)
SCENARIOS = {"a tile": (2, 64, 64), "several tiles": (2, 72, 136), "odd": (2, 64, 61), "few rows": (2, 3, 264)}
PADDED = {"with zeros": (1, 40, 264, 96), "in order": (2, 20, 200, 32)}


@pytest.fixture(scope="module")
def library(tmp_path_factory, emulation_cache) -> EmulatedLibrary:
    source = written('extern "C" { int fusegen_mutant = 0; }\n' + SOURCE, tmp_path_factory.mktemp("copies"))
    for name in {mutant.file for mutant in IMAGE_COPIES}:
        path = source.parents[1] / "support" / name
        chosen = [each for each in MUTANTS.items() if each[1].file == name]
        path.write_text(with_mutants(path.read_text(encoding="utf-8"), chosen), encoding="utf-8")
    return compile_kernels(source, cache=emulation_cache)


def verdict(library: EmulatedLibrary, scenario: str, number: int, seed: int) -> str:
    choose(library, number)
    try:
        if scenario in PADDED:
            padding.run(library, *PADDED[scenario], exchanged=scenario == "in order", seed=seed)
        else:
            run(library, *SCENARIOS[scenario], seed=seed)
    except EmulationError as error:
        return str(error)
    except AssertionError:
        return "not the copy"
    finally:
        choose(library, 0)
    return "fine"


@pytest.mark.parametrize("scenario", [*SCENARIOS, *PADDED])
def test_the_copy_without_a_mutant_is_right(scenario: str, library: EmulatedLibrary) -> None:
    for seed in SEEDS:
        assert verdict(library, scenario, 0, seed) == "fine"


@pytest.mark.parametrize("number", MUTANTS, ids=[mutant.name for mutant in IMAGE_COPIES])
def test_mutant_is_caught(number: int, library: EmulatedLibrary) -> None:
    mutant = MUTANTS[number]
    for seed in SEEDS:
        found = verdict(library, mutant.run, number, seed)
        assert re.search(mutant.caught, found), f"seed {seed}: {found}"
        if mutant.kernel:
            assert re.search(rf"[ :]{mutant.kernel}[<(]", found), f"seed {seed}: {found}"
