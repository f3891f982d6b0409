"""Each mistake in a copy of the kernel that takes the mean of losses is caught, and by what should catch it."""

from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate import EmulatedLibrary, EmulationError, compile_kernels  # noqa: E402
from tests.emulate.mutants.mean_losses import MEAN_LOSSES  # noqa: E402
from tests.emulate.mutants.mutant import with_mutants  # noqa: E402
from tests.emulate.mutants.scenario import choose  # noqa: E402
from tests.kernels.building import written  # noqa: E402
from tests.kernels.test_mean_loss import SOURCE, run  # noqa: E402

MUTANTS = dict(enumerate(MEAN_LOSSES, start=1))
ROWS = (5000, 4099)


@pytest.fixture(scope="module")
def library(tmp_path_factory, emulation_cache) -> EmulatedLibrary:
    source = written('extern "C" { int fusegen_mutant = 0; }\n' + SOURCE, tmp_path_factory.mktemp("losses"))
    path = source.parents[1] / "support" / MEAN_LOSSES[0].file
    path.write_text(with_mutants(path.read_text(encoding="utf-8"), [*MUTANTS.items()]), encoding="utf-8")
    return compile_kernels(source, cache=emulation_cache)


def verdict(library: EmulatedLibrary, number: int, rows: int) -> str:
    choose(library, number)
    try:
        mean, expected = run(library, rows, ignored=3)
    except EmulationError as error:
        return str(error)
    except AssertionError:
        return "wrong count"
    finally:
        choose(library, 0)
    return "fine" if torch.allclose(mean.double(), expected, rtol=1e-6, atol=0) else "wrong mean"


@pytest.mark.parametrize("rows", ROWS)
def test_the_mean_without_a_mutant_is_right(library, rows) -> None:
    assert verdict(library, 0, rows) == "fine"


@pytest.mark.parametrize("number", MUTANTS, ids=[mutant.name for mutant in MEAN_LOSSES])
def test_mutant_is_caught(number, library) -> None:
    mutant = MUTANTS[number]
    for rows in ROWS:
        found = verdict(library, number, rows)
        assert re.search(mutant.caught, found), f"{rows} rows: {found}"
        if mutant.kernel:
            assert re.search(rf"[ :]{mutant.kernel}[<(]", found), f"{rows} rows: {found}"
