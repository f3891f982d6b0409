"""Rows in shared memory of a block or of a cluster, beside double precision; and which rows are there."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.emulate.shared_rows import CHAINS, SharedRows  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

H100 = 227 * 1024


@pytest.fixture(scope="module")
def made(tmp_path_factory, emulation_cache):
    found: dict[tuple, SharedRows] = {}

    def made(name: str, shared_bytes: int, mode: int = 0, in_registers: bool = False) -> SharedRows:
        key = name, shared_bytes, mode, in_registers
        if key not in found:
            root = tmp_path_factory.mktemp("shared")
            found[key] = SharedRows(name, shared_bytes, root, emulation_cache, mode=mode, in_registers=in_registers)
        return found[key]

    return made


@pytest.mark.parametrize("name", CHAINS)
def test_rows_of_a_block_and_of_clusters(name: str, made) -> None:
    """Vectors and masked vectors, a single column, rows that some threads have nothing of."""
    chain, clusters = made(name, 6000), set()
    for rows, width in ((1, 7), (3, 1), (21, 132), (6, 700), (9, 1301)):
        clusters |= set(chain.clusters(rows, width))
        chain.check(rows, width, seeds=(0, 1))
    assert 1 in clusters and max(clusters) > 1


@pytest.mark.parametrize("name", ["sums_of_columns", "norm_and_side_input"])
def test_sixteen_bits(name: str, made) -> None:
    chain = made(name, 6000, mode=1)
    for rows, width in ((5, 1), (21, 264), (6, 701)):
        chain.check(rows, width, seeds=(0, 1))


@pytest.mark.parametrize("misalign", ["elements", "vectors"])
def test_tensors_may_begin_anywhere(misalign: str, made) -> None:
    for width in (132, 133):
        made("no_sums_of_columns", 6000).check(6, width, misalign=misalign)


def test_rows_that_fit_registers_are_there(made) -> None:
    """Only longer ones are in shared memory, and those that it does not hold in neither."""
    chain = made("no_sums_of_columns", H100, in_registers=True)

    def reasons(width: int) -> list[str]:
        return [each.considered[0].reason for each in chain.choices(4096, width)]

    assert reasons(8192) == ["a row of 8192 elements fits registers"] * 2
    place = "a row of 8196 elements fits "
    assert reasons(8196) == [f"{place}shared memory", f"{place}the shared memory of a cluster"]
    assert reasons(65536) == ["a row of 65536 elements fits the shared memory of a cluster"] * 2
    assert reasons(2**18) == ["a row of 262144 elements fits neither registers nor shared memory"] * 2
    assert [each.schedule for each in chain.choices(4096, 2**18)] == ["two_pass"] * 2
    # With column sums, rows are in registers of a cluster, or nowhere.
    sums = made("sums_of_columns", H100, in_registers=True)
    assert [each.schedule for each in sums.choices(4096, 16384)] == ["row", "row"]
    assert [each.schedule for each in sums.choices(4096, 16388)] == ["row", "two_pass"]
    # An extreme is read once: nothing is kept of its row. Its gradient reads it twice.
    extreme = made("extreme", H100, in_registers=True).choices(4096, 9000)
    assert [each.schedule for each in extreme] == ["two_pass", "row"]
