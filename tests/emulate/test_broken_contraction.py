"""Each mistake in a copy of the contraction's kernels is caught, and by what should catch it."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate import Buffer, EmulatedLibrary, EmulationError, compile_kernels  # noqa: E402
from fusegen.numerics.pieces import split  # noqa: E402
from fusegen.paths import templates_directory  # noqa: E402
from tests.emulate.mutants.contraction import CONTRACTION  # noqa: E402
from tests.emulate.mutants.mutant import with_mutants  # noqa: E402
from tests.emulate.mutants.scenario import choose  # noqa: E402
from tests.emulate.split import Emulated, hostile, product_of  # noqa: E402

pytestmark = pytest.mark.slow

MUTANTS = dict(enumerate(CONTRACTION, start=1))
SEEDS = range(2)
# One block comes to every tile of a product, and to every row of a column.
BLOCKS = ("constexpr int64_t kMostBlocks = 1024;", "constexpr int64_t kMostBlocks = 1;")
BLOCKS_DOWN = ("constexpr int64_t kMostBlocksDown = 65535;", "constexpr int64_t kMostBlocksDown = 1;")


@pytest.fixture(scope="module")
def library(tmp_path_factory, emulation_cache) -> EmulatedLibrary:
    support = tmp_path_factory.mktemp("contraction") / "support"
    shutil.copytree(templates_directory() / "support", support)
    for name in {mutant.file for mutant in CONTRACTION}:
        text = (support / name).read_text(encoding="utf-8")
        chosen = [each for each in MUTANTS.items() if each[1].file == name]
        text = with_mutants(text, chosen).replace(*BLOCKS).replace(*BLOCKS_DOWN)
        (support / name).write_text(text, encoding="utf-8")
    source = support / "contraction" / "contraction.cu"
    text = 'extern "C" { int fusegen_mutant = 0; }\n' + source.read_text(encoding="utf-8")
    source.write_text(text, encoding="utf-8")
    return compile_kernels(source, cache=emulation_cache)


def pieces(library: EmulatedLibrary, by_columns: bool) -> str:
    """Of values in several warps, rows and blocks; what is wrong with them."""
    values = hostile(70, 300, 5) if by_columns else hostile(9, 700, 5)
    found, expected = Emulated(library, values, by_columns), split(values, None, by_columns)
    wrong = [
        name
        for name in ("high", "low", "exponents", "lost")
        if not np.array_equal(getattr(found, name), getattr(expected, name))
    ]
    return f"wrong {', '.join(wrong)}" if wrong else "fine"


def finished(library: EmulatedLibrary, infinite: slice, seed: int) -> str:
    """A product of four tiles; rows of x that have an infinity are computed again, all others are as they were."""
    source = np.random.default_rng(7)
    x, w = (source.standard_normal((rows, 40)).astype(np.float32) for rows in (70, 66))
    x[infinite, 5] = np.inf
    left, right = Emulated(library, x), Emulated(library, w)
    scales = -(left.exponents[:, None] + right.exponents)
    sums = source.standard_normal((70, 66)).astype(np.float32)
    result, cross = (Buffer.from_tensor(torch.from_numpy(each)) for each in (sums.copy(), np.zeros_like(sums)))
    product = product_of(0, (70, 66, 40), left, right, result)
    library.call("fusegen_split_finish", product, cross, seed=seed)
    with np.errstate(invalid="ignore"):
        expected = np.ldexp(sums, scales)
        expected[infinite] = np.sign(w[:, 5]) * np.inf
    return "fine" if np.array_equal(result.tensor().numpy(), expected) else "wrong result"


SCENARIOS = {
    "rows": lambda library, seed: pieces(library, False),
    "columns": lambda library, seed: pieces(library, True),
    # Few elements of a tile, which warps compute one by one; then so many that all of it is.
    "a row": lambda library, seed: finished(library, slice(3, 4), seed),
    "many rows": lambda library, seed: finished(library, slice(0, 70, 2), seed),
}


def verdict(library: EmulatedLibrary, run: str, number: int, seed: int) -> str:
    choose(library, number)
    try:
        return SCENARIOS[run](library, seed)
    except EmulationError as error:
        return str(error)
    finally:
        choose(library, 0)


@pytest.mark.parametrize("run", SCENARIOS)
def test_the_copy_without_a_mutant_is_right(run: str, library: EmulatedLibrary) -> None:
    for seed in SEEDS:
        assert verdict(library, run, 0, seed) == "fine"


@pytest.mark.parametrize("number", MUTANTS, ids=[mutant.name for mutant in CONTRACTION])
def test_mutant_is_caught(number: int, library: EmulatedLibrary) -> None:
    mutant = MUTANTS[number]
    for seed in SEEDS:
        found = verdict(library, mutant.run, number, seed)
        assert re.search(mutant.caught, found), f"seed {seed}: {found}"
        if mutant.kernel is not None:
            assert re.search(rf"[ :]{mutant.kernel}[<(]", found), f"seed {seed}: {found}"
