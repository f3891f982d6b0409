"""The emulator can fail: each mistake in a copy of the kernels is caught, and by what should catch it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate import EmulatedLibrary  # noqa: E402
from tests.emulate.mutants.barriers import BARRIERS  # noqa: E402
from tests.emulate.mutants.bounds import BOUNDS  # noqa: E402
from tests.emulate.mutants.clusters import CLUSTERS  # noqa: E402
from tests.emulate.mutants.contraction import CONTRACTION  # noqa: E402
from tests.emulate.mutants.copies import FETCHES  # noqa: E402
from tests.emulate.mutants.counts import COUNTS  # noqa: E402
from tests.emulate.mutants.coverage import template_sources, untouched  # noqa: E402
from tests.emulate.mutants.exchanges import SEGMENT_EXCHANGES  # noqa: E402
from tests.emulate.mutants.image_copies import IMAGE_COPIES  # noqa: E402
from tests.emulate.mutants.l2 import L2  # noqa: E402
from tests.emulate.mutants.moments import MOMENTS  # noqa: E402
from tests.emulate.mutants.mutant import Mutant  # noqa: E402
from tests.emulate.mutants.odd_sizes import ODD_SIZES  # noqa: E402
from tests.emulate.mutants.samples import SAMPLES  # noqa: E402
from tests.emulate.mutants.scenario import Alike, Copy, Tail, build, choose  # noqa: E402
from tests.emulate.mutants.shared_memory import SHARED  # noqa: E402
from tests.emulate.mutants.shared_rows import SHARED_ROWS  # noqa: E402
from tests.emulate.mutants.stores import STORES  # noqa: E402
from tests.emulate.mutants.sums import SUMS  # noqa: E402
from tests.emulate.mutants.tiles import TILES  # noqa: E402

_KINDS = (BARRIERS, BOUNDS, CLUSTERS, COUNTS, FETCHES, L2, MOMENTS, ODD_SIZES, SEGMENT_EXCHANGES, SHARED, STORES, SUMS)
MUTANTS = dict(enumerate((mutant for kind in _KINDS for mutant in kind), start=1))

# Between them they run every kernel.
COPIES = {
    each.name: each
    for each in (
        Copy("batch norm", "matmul_bn_bias_div_swish"),
        # Single elements are too narrow to be copied alone.
        Copy("batch norm, 16 bits", "matmul_bn_bias_div_swish", "bfloat16"),
        Copy("group norm", "gemm_groupnorm_hardtanh"),
        # Large blocks with column sums, which need many iterations else.
        Copy(
            "group norm, 16 bits",
            "gemm_groupnorm_hardtanh",
            "bfloat16",
            ("row_work.cuh", "if (work.bytes > 2 || !has_room || iterations < 32) return false;", "return has_room;"),
        ),
        Copy("no norm", "gemm_multiply_leakyrelu"),
    )
}
SCENARIOS = {
    # 132 channels are a vector more than a block of the pointwise kernels has, 70 rows make three blocks of them.
    "column": Tail("batch norm", 70, 132, schedule="persistent"),
    "two_pass": Tail("batch norm", 70, 132, schedule="two_pass in eight blocks"),
    # Five tiles of 32 columns, the last one of 4, in three slices, the last one of 88 rows.
    "l2": Tail("batch norm", 600, 132, schedule="l2"),
    # 34 slices, for 32 threads of each column that end its sums.
    "l2, many rows": Tail("batch norm", 8500, 12, schedule="l2"),
    "l2, far from zero": Tail("batch norm", 70, 132, schedule="l2", mean=1000.0),
    # A thread has more rows than are on their way at once.
    "more rows": Tail("batch norm", 200, 132, schedule="persistent"),
    # Squares of these leave nothing of the variance in float32.
    "far from zero": Tail("batch norm", 70, 132, schedule="persistent", mean=1000.0),
    "far from zero, two_pass": Tail("batch norm", 70, 132, schedule="two_pass", mean=1000.0),
    # Four blocks of 18 rows, the last one of 16; then 7 blocks of 7 rows and one of none.
    "cluster": Tail("batch norm", 70, 132, schedule="wide clusters of 4"),
    "cluster, few rows": Tail("batch norm", 49, 133, schedule="wide clusters of 8"),
    "alike": Alike("batch norm", 70, 132, schedule="wide clusters of 4"),
    # Some threads have a column and no row.
    "few rows": Tail("batch norm", 5, 12, schedule="persistent"),
    "few rows, two_pass": Tail("batch norm", 5, 12, schedule="two_pass"),
    # Seven blocks of rows.
    "more rows, two_pass": Tail("batch norm", 200, 128, schedule="two_pass in eight blocks"),
    "pointwise": Tail("no norm", 70, 132),
    "odd": Tail("no norm", 69, 34),
    "misaligned": Tail("no norm", 70, 132, misalign="elements"),
    "misaligned bias": Tail("no norm", 70, 132, misalign="vectors"),
    # A group is a warp with two vectors in some threads; 41 rows are more than one turn of each block.
    "short rows": Tail("group norm", 41, 264, 2, schedule="persistent"),
    "few lanes": Tail("group norm", 5, 64, 2, schedule="persistent"),
    # A block has ten rows of three groups, and no use for what would be two groups more.
    "three groups": Tail("group norm", 37, 96, 3, schedule="persistent"),
    # A block has two groups of 16 rows, the last one of three blocks has one.
    "five groups": Tail("group norm", 37, 160, 5, schedule="persistent"),
    # A group is three warps, and a block has more than one of them to do.
    "long rows": Tail("group norm", 9, 544, 2, schedule="persistent"),
    # The last of three warps has fewer values than the others.
    "long odd rows": Tail("group norm", 9, 382, 1, schedule="persistent"),
    "segments": Tail("group norm", 41, 264, 2, schedule="two_pass"),
    # 16 lanes each; the last block has two.
    "short segments": Tail("group norm", 41, 66, 2, schedule="two_pass"),
    # A thread has several vectors, and several batches of them.
    "longer segments": Tail("group norm", 3, 2110, 1, schedule="two_pass"),
    "longer segments, far from zero": Tail("group norm", 3, 2112, 1, schedule="two_pass", mean=1000.0),
    "longest segments": Tail("group norm", 2, 8200, 1, schedule="two_pass"),
    # Forward blocks are large: what they have of their columns is in shared memory. Backward it is clusters of eight.
    "longest rows": Tail("group norm", 3, 4200, 1, schedule="persistent if it fits"),
    "longest rows, 16 bits": Tail("group norm, 16 bits", 3, 4200, 1, schedule="persistent if it fits"),
    # Each of four blocks has a turn of every four.
    "segments of a cluster": Tail("group norm", 3, 8200, 2, schedule="two_pass, segments in 4 blocks"),
    # Columns that are not neighbours.
    "odd columns": Tail("batch norm", 70, 33, schedule="persistent"),
    "odd columns, 16 bits": Tail("batch norm, 16 bits", 200, 33, schedule="persistent"),
    # Lines of four rows, of which the last one has two.
    "odd, two_pass": Tail("batch norm", 70, 33, schedule="two_pass"),
    # A block of 32 lines and one of 18.
    "two odd blocks, two_pass": Tail("batch norm", 200, 33, schedule="two_pass"),
    # Two blocks of 32 lines and one of 19, whose last line has two rows: twelve partial results of a column.
    "more odd rows, two_pass": Tail("batch norm", 330, 33, schedule="two_pass in eight blocks"),
    # A group is nine lanes, of which a warp has three times as many, or more than a warp has with one vector each.
    "odd rows": Tail("group norm", 41, 66, 2, schedule="persistent"),
    "odd rows by vectors": Tail("group norm", 41, 266, 2, schedule="persistent"),
    "odd rows by vectors, one group": Tail("group norm", 41, 133, 1, schedule="persistent"),
    # Rows begin at multiples of a vector, and every other group does not.
    "odd groups": Tail("group norm", 9, 36, 2, schedule="persistent"),
    "odd segments": Tail("group norm", 9, 66, 2, schedule="two_pass"),
}
OF_COPY = {
    copy: [(number, mutant) for number, mutant in MUTANTS.items() if SCENARIOS[mutant.run].copy == copy]
    for copy in COPIES
}
SEEDS = range(2)
# A copy whose mutants are a sample: with it every run of the tests sees that mutants are caught.
SAMPLE = "no norm"


def marks_of(run: str) -> tuple[pytest.MarkDecorator, ...]:
    return () if SCENARIOS[run].copy == SAMPLE else (pytest.mark.slow,)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("broken")


@pytest.fixture(scope="module")
def libraries(root, emulation_cache) -> Callable[[str], EmulatedLibrary]:
    """By the name of a copy: it with all of its mutants, compiled when a test first needs it."""
    return functools.cache(lambda name: build(COPIES[name], OF_COPY[name], directory(root, name), emulation_cache))


def directory(root: Path, name: str) -> Path:
    path = root / name.replace(" ", "_")
    path.mkdir(exist_ok=True)
    return path


def verdict(libraries, root: Path, run: str, number: int, seed: int) -> str:
    scenario = SCENARIOS[run]
    library = libraries(scenario.copy)
    choose(library, number)
    try:
        return scenario.verdict(library, COPIES[scenario.copy], directory(root, scenario.copy), seed)
    finally:
        choose(library, 0)


@pytest.mark.parametrize("run", [pytest.param(run, marks=marks_of(run)) for run in SCENARIOS])
def test_copies_without_a_mutant_are_right(run, libraries, root):
    for seed in SEEDS:
        assert verdict(libraries, root, run, 0, seed) == "fine"


@pytest.mark.parametrize(
    "number", [pytest.param(number, id=each.name, marks=marks_of(each.run)) for number, each in MUTANTS.items()]
)
def test_mutant_is_caught(number, libraries, root):
    """Whatever order blocks and threads run in."""
    mutant: Mutant = MUTANTS[number]
    for seed in SEEDS:
        found = verdict(libraries, root, mutant.run, number, seed)
        assert re.search(mutant.caught, found), f"seed {seed}: {found}"
        if mutant.kernel is not None:
            assert re.search(rf"[ :]{mutant.kernel}[<(]", found), f"seed {seed}: {found}"


def untouched_in(sources: dict[str, str]) -> list[tuple[str, int]]:
    return untouched(sources, [*MUTANTS.values(), *CONTRACTION, *TILES, *IMAGE_COPIES, *SAMPLES, *SHARED_ROWS])


def test_every_barrier_and_shuffle_of_the_kernels_has_a_mutant():
    assert untouched_in(template_sources()) == []


@pytest.mark.parametrize(
    "name, text",
    [
        ("support/moments.cuh", "  const Acc distance = part.mean - sums.shift;"),
        ("support/math.cuh", "namespace fusegen {"),
        ("support/kernels/row.cuh", "  const int lane = position.lane;"),
        ("program.cu.j2", "{"),
        ("bindings.cpp.j2", "namespace {"),  # which has no kernel at all
    ],
)
def test_a_further_barrier_would_be_missed(name, text):
    sources = template_sources()
    before, found, after = sources[name].partition(text)
    assert found
    sources[name] = f"{before}{text}\n__syncthreads();{after}"
    assert untouched_in(sources) == [(name, before.count("\n") + 2)]


@pytest.mark.parametrize(
    "text", ['asm volatile("bar.sync 0;");', "__pipeline_wait_prior(0);", "end_row();", "wait_for_rows<0>();"]
)
def test_an_instruction_that_waits_would_be_missed(text):
    sources = template_sources()
    line = sources["support/math.cuh"].count("\n") + 1
    sources["support/math.cuh"] += f"{text}\n"
    assert untouched_in(sources) == [("support/math.cuh", line)]


def test_a_barrier_in_a_comment_is_none():
    sources = template_sources()
    sources["support/math.cuh"] += "// Like __syncthreads().\n"
    sources["program.cu.j2"] += "{# Like __syncthreads(). #}\n"
    assert untouched_in(sources) == []
