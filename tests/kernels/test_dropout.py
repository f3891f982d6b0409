"""The random numbers of dropouts, in C++ and in PyTorch: known values, statistics, and one factor of an element however
it is drawn."""

from __future__ import annotations

import importlib.util
import sys

import pytest
import torch

from fusegen.emulate import Buffer
from fusegen.paths import templates_directory
from tests.kernels.building import compiled

_SPEC = importlib.util.spec_from_file_location("support_of_dropouts", templates_directory() / "support" / "__init__.py")
assert _SPEC is not None and _SPEC.loader is not None
_SUPPORT = sys.modules[_SPEC.name] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_SUPPORT)
dropout = _SUPPORT.dropout

SOURCE = """\
#include "../support/dropout.cuh"
#include "../support/launch.cuh"

namespace toy {
using namespace fusegen;

__global__ void words(const unsigned* counter, uint64_t key, unsigned* result) {
  const Words made = philox({{counter[0], counter[1], counter[2], counter[3]}}, key);
  for (int w = 0; w < 4; ++w) result[w] = made.word[w];
}

// All kinds of columns, of vectors of N elements from number `first` on.
template <int N>
__global__ void factors(Dropout<float> d, int64_t first, float* result) {
  float factor[N];
  const auto put = [&](int kind) {
    for (int v = 0; v < N; ++v) result[kind * N + v] = factor[v];
  };
  const int64_t begin = first - first % N;  // of the aligned vector around it
  draw_columns(d, Columns<N, true>{begin - 5, 1, N}, 5, factor);
  put(0);
  draw_columns(d, MaskedVector<N>{begin - 5, 0, 1u}, 5, factor);
  put(1);
  draw_columns(d, UnalignedVector<N>{first - 5, N}, 5, factor);
  put(2);
  draw_columns(d, Columns<N, false>{first - 5, 3, N}, 5, factor);
  put(3);
  for (int v = 0; v < N; ++v) factor[v] = read(SampleFactors<float>{d} + (first + v)).value;
  put(4);
}
}  // namespace toy

extern "C" int words(const unsigned* counter, int64_t key, unsigned* result) {
  return fusegen::launch(toy::words, dim3(1), dim3(1), 0, nullptr, counter, uint64_t(key), result);
}
extern "C" int factors(
    int size, const void* seed, int stream, const double* p, int64_t sample, int64_t first,
    float* result) {
  const auto d = fusegen::dropout_of<float>(seed, unsigned(stream), *p, sample);
  const auto kernel = size == 8 ? toy::factors<8> : size == 4 ? toy::factors<4> : toy::factors<2>;
  return fusegen::launch(kernel, dim3(1), dim3(1), 0, nullptr, d, first, result);
}
"""
# Counter, key and result, of Philox4x32 with ten rounds: the known answers of Random123, the authors' library.
KNOWN = (
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)
SEED = torch.tensor(0x0123456789ABCDEF)


@pytest.fixture(scope="module")
def library(tmp_path_factory, emulation_cache):
    return compiled(SOURCE, tmp_path_factory.mktemp("programs"), emulation_cache)


def signed(words, bits: int):
    """Words as the signed numbers that have the same bits."""
    return [word - (1 << bits) if word >> (bits - 1) else word for word in words]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter, key, expected, library) -> None:
    (key64,) = signed([key[0] | key[1] << 32], 64)
    result = Buffer.poisoned((4,), torch.int32)
    given = Buffer.from_tensor(torch.tensor(signed(counter, 32), dtype=torch.int32), readonly=True)
    library.call("words", given, key64, result)
    assert result.tensor().tolist() == signed(expected, 32)
    found = dropout.philox([torch.tensor([word]) for word in counter], torch.tensor(key64))
    assert [int(word) for word in found] == list(expected)


def drawn(library, size: int, p: float, first: int, stream: int = 0, sample: int = 1) -> torch.Tensor:
    result = Buffer.poisoned((5, size), torch.float32)
    share = Buffer.from_tensor(torch.tensor(p, dtype=torch.float64), readonly=True)
    library.call("factors", size, Buffer.from_tensor(SEED, readonly=True), stream, share, sample, first, result)
    return result.tensor().double()


@pytest.mark.parametrize("first", [8, 13, 14, 15, 2**34 + 6, 2**40 + 3])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_an_element_has_one_factor_in_every_vector(size: int, first: int, library) -> None:
    """The expected values are those of the numbers, by the function for PyTorch's tensors."""
    found = drawn(library, size, 0.5, first, stream=3)
    begin, steps = first - first % size, torch.arange(size)
    numbers = torch.stack([begin + steps, begin + steps, first + steps, first + 3 * steps, first + steps])
    assert torch.equal(found, dropout.factors(SEED, 3, 0.5, numbers))


@pytest.mark.parametrize("first", [0, 7, 2**34 + 6])
@pytest.mark.parametrize("sample", [3, 100, 2**33])
def test_all_rows_of_a_sample_have_one_factor(sample: int, first: int, library) -> None:
    found = drawn(library, 8, 0.5, first, sample=sample)[4]
    assert torch.equal(found, dropout.factors(SEED, 0, 0.5, (first + torch.arange(8)) // sample))


@pytest.mark.parametrize("p", [0.0, 1e-9, 0.1, 0.75, 1 - 2.0**-33, 1.0])
def test_the_factor_of_what_is_kept(p: float, library) -> None:
    found = drawn(library, 8, p, 0)
    kept = found[found != 0]
    scale = torch.tensor(1 / (1 - p) if p < 1 else 0.0).float().double()
    assert torch.equal(kept, scale.expand(kept.shape))
    assert (p == 0) <= bool((found == 1).all()) and (p == 1) <= bool((found == 0).all())


def test_the_threshold_is_exact(library) -> None:
    """An element is dropped by the very p that is above its number, and kept by the next lower multiple of 2^-32."""
    zero = torch.tensor([0])
    word = int(dropout.philox((torch.tensor([3]), zero, zero, zero), SEED)[2])  # number 14
    for p, dropped in ((word / 2**32, False), ((word + 1) / 2**32, True)):
        assert (drawn(library, 2, p, 14)[0, 0] == 0) == dropped
        assert (dropout.factors(SEED, 0, p, torch.tensor([14]))[0] == 0) == dropped


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_as_many_are_dropped_as_should_be(p: float) -> None:
    """Of a fixed seed, so the same each time; within five standard deviations."""
    count = 1 << 18
    dropped = [dropout.factors(SEED, stream, p, torch.arange(count)) == 0 for stream in (0, 1)]
    deviation = (p * (1 - p) / count) ** 0.5
    for each in dropped:
        assert abs(each.double().mean().item() - p) < 5 * deviation
        # Neighbours, words of one block, and elements a row of 1024 apart say nothing of each other.
        for distance in (1, 2, 3, 4, 1024):
            both = (each[distance:] & each[:-distance]).double().mean().item()
            assert abs(both - p * p) < 5 * (p * p * (1 - p * p) / count) ** 0.5 * 2
    both = (dropped[0] & dropped[1]).double().mean().item()
    assert abs(both - p * p) < 5 * (p * p * (1 - p * p) / count) ** 0.5
    other = dropout.factors(SEED + 1, 0, p, torch.arange(count)) == 0
    assert abs((dropped[0] & other).double().mean().item() - p * p) < 5 * (p * p * (1 - p * p) / count) ** 0.5
