"""Mistakes in what surrounds a product's tensor cores, each of which has to show on the emulator."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import fusegen  # noqa: E402
from fusegen.emulate import EmulatedLibrary, EmulationError, compile_kernels  # noqa: E402
from tests.emulate.building import arguments, write  # noqa: E402
from tests.emulate.epilogue import Both, normal, split_spec  # noqa: E402
from tests.emulate.mutants.mutant import Mutant  # noqa: E402
from tests.emulate.mutants.scenario import add_mutants, choose  # noqa: E402
from tests.emulate.other_chains import HAND_PICKED  # noqa: E402
from tests.emulate.split import CONTRACTION, ONE_CLUSTER, check_product, hostile  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]

NAME, DEPTH = "broken_epilogue", 23
_PRODUCT, _TAIL, _ANY = (
    "wrong product",
    "wrong result",
    r"wrong|writes global memory|past its end|which another (block|thread)|another thread \(.*\) has",
)


def doubtful(rows: int, columns: int, seed: int) -> np.ndarray:
    """As x (1), some rows have an element that leaves nothing of the others' pieces; as the weight (2), some rows have
    no use for it."""
    values = normal(rows, columns, seed)
    if seed == 1:
        values[::9, 0] *= 2.0**40
    else:
        values[::5, 0] = 0
    return values


# Mutants may write one row past a buffer: a page behind it is watched.
# By run: rows, channels, operands, and what begins an element behind a multiple of 16 bytes. Whole tiles; tiles that
# end within a thread's part, along rows; pairs of tiles along columns.
RUNS = {
    "whole": (128, 132, normal, ""),
    "odd": (301, 131, normal, ""),
    "wide": (70, 386, normal, ""),
    "misaligned": (130, 132, normal, "elements"),
    "misaligned channels": (130, 132, normal, "vectors"),
    "few": (191, 132, doubtful, ""),
    "hostile": (67, 70, hostile, ""),
}


def _mutants(cases):
    return [Mutant(f"{run}: {what}", run, f"contraction/{file}", within, old, new, caught, None, *(rest or (0, 1)))
            for what, run, file, within, old, new, caught, *rest in cases]  # fmt: skip


MUTANTS = dict(enumerate(_mutants((
    # Which tile, and what of it is whose.
    ("the other block's tile", "odd", "tiles.cuh", None, "(2 * row + rank) * kTileRows", "(2 * row) * kTileRows", _ANY),
    ("the other block's columns", "wide", "tiles.cuh", None, "(2 * column + rank) * kTileColumns",
     "(2 * column) * kTileColumns", _ANY),
    ("the rows of the other half", "whole", "tiles.cuh", "row", "first_row + 8 * half", "first_row + 8 - 8 * half",
     _ANY),
    ("another warp's rows", "whole", "tiles.cuh", None, "thread / 32 * 16", "(thread / 32 ^ 1) * 16", _ANY),
    # From sums to the product.
    ("the exponent of the row before", "few", "tiles.cuh", "finish_sums", "__ldg(p.left_largest + i)",
     "__ldg(p.left_largest + max(i - 1, 0))", _PRODUCT),
    ("the exponent of the other column", "few", "tiles.cuh", "finish_sums", "mine.column(pair) + v",
     "mine.column(pair)", _PRODUCT),
    ("no low pieces", "whole", "tiles.cuh", "finish_sums", "fmaf(cross[at], kLowUnit, sum[at])", "sum[at]", _PRODUCT),
    # Stores of the product.
    ("a row past the end", "odd", "epilogue.cuh", "tile", "i >= p.rows", "i > p.rows", _ANY),
    ("a column past the end", "odd", "epilogue.cuh", "tile", "if (j >= p.columns) continue;", "", _ANY),
    ("the second of a last pair", "odd", "epilogue.cuh", "tile", "j + 1 < p.columns", "true", _ANY),
    ("pairs of odd rows", "odd", "epilogue.cuh", "tile", "p.columns % 2 == 0", "true", "misaligned|past its end"),
    # The tail.
    ("a tile that is not whole by vectors", "few", "tiles.cuh", "is_whole", "tile_row + 64 <= p.rows",
     "tile_row + 63 <= p.rows", _ANY),
    ("columns that are not whole by vectors", "wide", "tiles.cuh", "is_whole",
     "tile_column + kTileColumns <= p.columns", "true", _ANY),
    ("vectors of channels that are not aligned", "misaligned channels", "entry.cuh", None,
     "begins == Aligned::kAll", "true", "misaligned"),
    ("vectors of elements that are not aligned", "misaligned", "entry.cuh", None,
     "begins == Aligned::kNone ? 0 : p.rows * p.channels", "p.rows * p.channels", "misaligned"),
    ("pairs of odd rows in the tail", "odd", "entry.cuh", None, "p.channels % 2 == 0", "true", "misaligned|past"),
    ("inputs of the first pair", "whole", "tail.cuh", "of_tile", "in[n][half]", "in[0][half]", _TAIL, 1, 2),
    ("channels of the first pair", "whole", "tail.cuh", "of_tile", "channel[n]", "channel[0]", _TAIL, 1, 2),
    ("the first product of a pair for both", "whole", "tail.cuh", "store", "product.z[v]", "product.z[0]", _TAIL),
    # Elements that are computed again.
    ("the tail of what was computed again", "few", "recheck.cuh", "recheck_product",
     "epilogue.element(p, i, j, z);", "p.result[i * p.columns + j] = z;", _TAIL),
    ("the tail of many such elements", "hostile", "recheck.cuh", "recompute_tile", "finish(i, j, total[a][b]);",
     "p.result[i * p.columns + j] = total[a][b];", _TAIL),
    ("nothing is computed again", "few", "recheck.cuh", "recheck_product", "if (lane == 0) finish(i, j, z);", ";",
     _PRODUCT),
    ("another element's product", "few", "tail.cuh", "element", "StoreProduct().element(p, i, j, z);",
     "StoreProduct().element(p, i, j, z + 1);", _PRODUCT),
)), start=1))  # fmt: skip


@pytest.fixture(scope="module")
def contraction(emulation_cache: Path) -> EmulatedLibrary:
    return compile_kernels(CONTRACTION, cache=emulation_cache)


@pytest.fixture(scope="module")
def broken(tmp_path_factory, emulation_cache: Path):
    """A chain's plan, class and kernels, with all mutants in them."""
    root = tmp_path_factory.mktemp("broken_epilogues")
    plan = write(NAME, split_spec(HAND_PICKED["two_inputs"], NAME), root)
    module_class = fusegen.load(NAME, root)
    add_mutants(root / NAME, list(MUTANTS.items()))
    kernels = root / NAME / "kernels.cu"
    return plan, module_class, compile_kernels(kernels, cache=emulation_cache, modes=[0], defines=[ONE_CLUSTER])


def verdict(broken, contraction: EmulatedLibrary, run: str, number: int) -> str:
    plan, module_class, library = broken
    rows, channels, operands, misalign = RUNS[run]
    torch.manual_seed(rows)
    module = module_class(*arguments(plan, rows, channels, 1, DEPTH))
    x, w = operands(rows, DEPTH, 1), operands(channels, DEPTH, 2)
    tensors = {name: torch.randn(rows, channels) for name in plan.chain.tail_inputs}
    both = Both(plan, plan.variants[-1], library, module)
    choose(library, number)
    try:
        product, found, expected = both.run_both(contraction, x, w, tensors, number, misalign)
        with np.errstate(all="ignore"):
            a, b = x.astype(np.float64), w.T.astype(np.float64)
            check_product(product, a @ b, np.abs(a) @ np.abs(b))
    except EmulationError as error:
        return str(error)
    except AssertionError:
        return "wrong product"
    finally:
        choose(library, 0)
    same = all(torch.equal(found[name].nan_to_num(7), value.nan_to_num(7)) for name, value in expected.items())
    return "fine" if same else "wrong result"


@pytest.mark.parametrize("run", RUNS)
def test_without_a_mutant_all_is_right(broken, contraction: EmulatedLibrary, run: str) -> None:
    assert verdict(broken, contraction, run, 0) == "fine"


@pytest.mark.parametrize("number", MUTANTS, ids=[mutant.name for mutant in MUTANTS.values()])
def test_mutant_is_caught(broken, contraction: EmulatedLibrary, number: int) -> None:
    found = verdict(broken, contraction, MUTANTS[number].run, number)
    assert re.search(MUTANTS[number].caught, found), found
