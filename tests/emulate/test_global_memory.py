"""Strays from a global buffer, skipped elements and writes to inputs are seen.

Even where accesses are not looked at; test_accesses.py has the same kernels with that.
"""

import pytest
import torch

from fusegen.emulate import Buffer, EmulationError

# y[i] = 2 x[i], with a grid-stride loop; `mode` chooses a mistake.
ELEMENTWISE = """
enum Mode {
  correct, reads_past_end, writes_past_end, writes_before_start, skips_last, vectors, writes_input,
};

__global__ void __launch_bounds__(64)
twice(int mode, float* __restrict__ x, float* __restrict__ y, int64_t n) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  int64_t end = mode == reads_past_end || mode == writes_past_end ? n + 1 : n;
  if (mode == skips_last) end = n - 1;
  if (mode == vectors) {
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n / 4; i += step) {
      const float4 v = reinterpret_cast<const float4*>(x)[i];
      reinterpret_cast<float4*>(y)[i] = make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w);
    }
    return;
  }
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < end; i += step) {
    const float v = mode == writes_past_end && i == n ? 0.0f : __ldg(x + i);
    if (mode == reads_past_end && i == n) y[i - step] = v; else y[i] = 2 * v;
  }
  if (mode == writes_before_start) y[-1] = 0.0f;
  if (mode == writes_input) x[0] = 0.0f;
}

extern "C" int twice_forward(int mode, void* x, void* y, int64_t n, int64_t blocks) {
  return fusegen::launch(twice, dim3(blocks), dim3(64), 0, nullptr, mode, static_cast<float*>(x),
                         static_cast<float*>(y), n);
}

extern "C" int64_t twice_workspace(int mode, int64_t n) { return mode + (n << 33); }

extern "C" int too_many_threads(int) {
  fusegen::launch(twice, 1, 2048, 0, nullptr, 0, nullptr, nullptr, 0);
  return cudaGetLastError();
}
"""

MODES = [word.strip() for word in ELEMENTWISE.split("enum Mode {")[1].split("}")[0].split(",")]


@pytest.fixture(scope="module")
def elementwise(build):
    return build(ELEMENTWISE, "elementwise", checked=False)


def twice(library, name, n=100, blocks=1, seed=0, **options):
    x = torch.arange(n, dtype=torch.float32)
    y = Buffer.poisoned([n], torch.float32, **options)
    source = Buffer.from_tensor(x, readonly=True, **options)
    library.call("twice_forward", MODES.index(name), source, y, n, blocks, seed=seed)
    return y.tensor(), 2 * x


@pytest.mark.parametrize("n", [1, 63, 100, 1000])
@pytest.mark.parametrize("offset_bytes", [0, 4])
def test_grid_stride(elementwise, n, offset_bytes):
    for seed in range(6):
        torch.testing.assert_close(*twice(elementwise, "correct", n, blocks=3, seed=seed, offset_bytes=offset_bytes))


def test_grid_without_blocks_is_success(elementwise):
    assert twice(elementwise, "correct", blocks=0)[0].isnan().all()


def test_skipped_element_stays_poisoned(elementwise):
    y, _ = twice(elementwise, "skips_last", blocks=2)
    assert y.isnan().tolist() == [False] * 99 + [True]


@pytest.mark.parametrize(
    "name, n, message",
    [
        (
            "reads_past_end",
            100,
            r"twice.*block \(0, 0, 0\), thread \(36, 0, 0\): reads .*argument 1.*read-only"
            r".* 0 bytes past its end \[kernels.cu:\d+\]",
        ),
        ("writes_past_end", 100, r"writes .*argument 2.* 0 bytes past its end"),
        ("writes_past_end", 101, r"argument 2.* was written 0 bytes past its end"),
        ("writes_before_start", 100, r"argument 2.* was written 4 bytes before its start"),
        ("writes_before_start", 1024, r"writes .*argument 2.* 4 bytes before its start"),
        ("writes_input", 100, r"writes .*argument 1, Buffer\(float32, \[100\]\) \(read-only\), at element 0"),
    ],
)
def test_stray_global_access(elementwise, name, n, message):
    with pytest.raises(EmulationError, match=message):
        twice(elementwise, name, n)
    torch.testing.assert_close(*twice(elementwise, "correct", n))  # and the next launch is as good as new


def test_read_into_the_slack_gives_nan(elementwise):
    assert twice(elementwise, "reads_past_end", 101)[0].isnan().any()


def test_vector_access(elementwise):
    torch.testing.assert_close(*twice(elementwise, "vectors", 128))
    with pytest.raises(EmulationError, match=r"misaligned access.*\[kernels.cu:\d+\]"):
        twice(elementwise, "vectors", 128, offset_bytes=4)


def test_int64_and_launch_errors(elementwise):
    assert elementwise.call_int64("twice_workspace", 3, 5) == 3 + (5 << 33)
    with pytest.raises(EmulationError, match="too_many_threads returned CUDA error 9"):
        elementwise.call("too_many_threads", 0)
