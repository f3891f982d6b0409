"""Building, caching, and what becomes of a signal."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fusegen.emulate import Buffer, EmulationBuildError, EmulationError
from fusegen.runtime.structs import Struct
from tests.emulate.building import compiled_shapes

ROOT = Path(__file__).resolve().parents[2]

FAULTS = """
__global__ void faults(int mode, int* y, int zero) {
  volatile int array[4] = {1, 2, 3, 4};
  if (threadIdx.x != 3) return;
  if (mode == 0) *y = 7 / zero;
  if (mode == 1) *y = array[4 + zero];
  if (mode == 2) *y = 0x7fffffff + (zero + 1);
  if (mode == 3) *reinterpret_cast<volatile int*>(16) = 1;
  if (mode == 6) *reinterpret_cast<int*>(reinterpret_cast<char*>(y) + 2) = 1;
  if (mode != 4) return;
  __attribute__((uninitialized)) volatile char large[80 * 1024];  // else memset is what overflows it
  for (int i = 0; i < 80 * 1024; ++i) large[80 * 1024 - 1 - i] = 0;
}
extern "C" int run_faults(int mode, void* y) {
  const cudaError_t first = fusegen::launch(faults, 1, 8, 0, nullptr, mode, static_cast<int*>(y), 0);
  fusegen::launch(faults, 1, 8, 0, nullptr, 5, static_cast<int*>(y), 0);
  return first == cudaErrorLaunchFailure && cudaGetLastError() == first ? 0 : 1;  // the report must do
}
__global__ void nothing() {}
extern "C" int run_nothing() { return fusegen::launch(nothing, 1, 8, 0, nullptr); }
"""


@pytest.mark.parametrize(
    "number, message",
    [
        (0, "divides an integer by zero"),
        (1, "bounds"),
        (2, "overflows a signed integer"),
        (3, "global memory at 0x10"),
        (4, "overflows its stack"),
        (6, "makes a misaligned access, of 4 bytes"),
    ],
)
def test_faults_name_thread_and_line(build, number, message):
    library = build(FAULTS, "faults")
    y = Buffer.poisoned([1], torch.int32)
    with pytest.raises(EmulationError, match=rf"thread \(3, 0, 0\): .*{message}.*\[kernels.cu:\d+\]"):
        library.call("run_faults", number, y)


STRUCT = """
struct Given { int64_t n; double value; const float* x; float* y; };
__global__ void add(Given given) {
  if (threadIdx.x < given.n) given.y[threadIdx.x] = given.x[threadIdx.x] + given.value;
}
extern "C" int run_add(int, const Given* given) { return fusegen::launch(add, 1, 8, 0, nullptr, *given); }
"""


class Given(ctypes.Structure):
    _fields_ = [("n", ctypes.c_int64), ("value", ctypes.c_double), ("x", ctypes.c_void_p), ("y", ctypes.c_void_p)]


def test_buffers_in_a_struct_are_looked_at(build):
    library = build(STRUCT, "struct")
    x, y = Buffer.from_tensor(torch.arange(4.0), readonly=True), Buffer.poisoned([4], torch.float32)
    library.call("run_add", 0, Struct(Given, {"n": 4, "value": 0.5, "x": x, "y": y}))
    assert y.tensor().tolist() == [0.5, 1.5, 2.5, 3.5]
    for members, message in (
        ({"n": 5, "x": x, "y": y}, r"reads .*, x, Buffer\(float32, \[4\]\) \(read-only\), 0 bytes past its end"),
        ({"n": 4, "x": y, "y": x}, r"writes .*, y, Buffer\(float32, \[4\]\) \(read-only\), at element"),
    ):
        with pytest.raises(EmulationError, match=message):
            library.call("run_add", 0, Struct(Given, {"value": 0.5, **members}))


def test_an_error_is_that_of_one_call(build):
    """Emulated packages launch kernels by themselves, with the engine that all libraries of a process share."""
    library = build(FAULTS, "faults")
    with pytest.raises(EmulationError):
        library.call("run_faults", 0, Buffer.poisoned([1], torch.int32))
    assert ctypes.CDLL(str(library.path)).run_nothing() == 0


def test_build(build):
    with pytest.raises(EmulationBuildError, match=r"kernels.cu.*error.*undeclared_name"):
        build("int f() { return undeclared_name; }", "broken")
    with pytest.raises(EmulationBuildError, match="__shared__"):
        build("__global__ void f() { __shared__ float x[4]; x[0] = 1; }", "static_shared")
    text = 'extern "C" int64_t value(int) { return VALUE; }'
    one, two = build(text, "defines", defines=["VALUE=1"]), build(text, "defines", defines=["VALUE=2"])
    assert (one.call_int64("value", 0), two.call_int64("value", 0)) == (1, 2)
    assert build(text, "defines", defines=["VALUE=1"]).path == one.path


MODES = """
#include "../support/kernels/entry.cuh"
using Modes = fusegen::DtypeModes<fusegen::Types<float>, fusegen::Types<double>, fusegen::Types<int>>;
template <typename T> using Size = std::integral_constant<int, sizeof(T)>;
extern "C" int64_t size(int mode) {
  int found = 0;
  Modes::with(mode, [&](auto types) {
    found = typename decltype(types)::template Of<Size>();
    return cudaGetLastError();
  });
  return found;
}
"""


def test_a_library_of_some_modes_has_no_others(tmp_path, emulation_cache):
    sizes = {None: [4, 8, 4], (1,): [0, 8, 0], (2, 0): [4, 0, 4]}
    libraries = {modes: compiled_shapes(MODES, tmp_path / str(modes), emulation_cache, modes=modes) for modes in sizes}
    for modes, expected in sizes.items():
        assert [libraries[modes].call_int64("size", mode) for mode in range(3)] == expected


def test_kernels_for_a_debugger_have_their_variables(build, monkeypatch):
    source = 'extern "C" int64_t twice(int x) { const int64_t its_double = 2 * int64_t(x); return its_double; }'
    shown = []
    for debug in (False, True):
        if debug:
            monkeypatch.setenv("FUSEGEN_DEBUG_KERNELS", "1")
        library = build(source, "debug")
        assert library.call_int64("twice", 21) == 42
        dump = subprocess.run(
            ["readelf", "--debug-dump=info", library.path], capture_output=True, text=True, check=True
        )
        shown.append("its_double" in dump.stdout)
    assert shown == [False, True]


def test_cache_follows_included_files(build, sources):
    results = []
    for value in (1, 2):
        (sources / "header").mkdir(exist_ok=True)
        (sources / "header" / "value.h").write_text(f"#define VALUE {value}")
        library = build('#include "value.h"\nextern "C" int64_t value(int) { return VALUE; }', "header")
        results.append(library.call_int64("value", 0))
    assert results == [1, 2]


def test_processes_may_compile_at_once(tmp_path):
    (tmp_path / "k.cu").write_text('#include <cuda_runtime.h>\nextern "C" int f(int) { return 0; }')
    code = (
        "import pathlib, sys; from fusegen.emulate import compile_kernels\n"
        "compile_kernels(pathlib.Path('k.cu'), cache=pathlib.Path('cache')).call('f', 0)\n"
        "assert 'torch' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    runs = [subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment) for _ in range(3)]
    assert [run.wait() for run in runs] == [0, 0, 0]
    suffixes = [path.suffix for path in (tmp_path / "cache").iterdir()]
    assert sorted(suffixes) == [".gch", ".h", ".lock", ".so", ".so"]  # the headers, the engine, and the kernels
