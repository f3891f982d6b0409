"""A real package through real compilers, loaded where there is no GPU."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from fusegen.build import BuildError, build_extension, toolchain
from fusegen.paths import templates_directory

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.nvcc

KERNELS = """
#include <cuda_runtime.h>

#include <cstdint>

#include "../support/factor.cuh"

__global__ void scale(const float* x, float* y, int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = kFactor * x[i];
}

extern "C" cudaError_t NAME_scale(const float* x, float* y, int64_t n, cudaStream_t stream) {
  scale<<<static_cast<unsigned>((n + 255) / 256), 256, 0, stream>>>(x, y, n);
  return cudaGetLastError();
}
"""

BINDINGS = """
#include <stdexcept>

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include "../support/package_info.h"

extern "C" int NAME_scale(const float*, float*, int64_t, void*);

namespace {

using torch::stable::Tensor;

Tensor scale(Tensor x) {
  Tensor y = torch::stable::empty_like(x);
  const int error = NAME_scale(static_cast<const float*>(x.data_ptr()), static_cast<float*>(y.data_ptr()),
                               x.numel(), nullptr);
  if (error != 0) throw std::runtime_error("launch failed with CUDA error " + std::to_string(error));
  return y;
}

Tensor copy(Tensor x) { return torch::stable::clone(x); }

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(fusegen, library) { library.def("NAME_scale_0(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(fusegen, CUDA, library) { library.impl("NAME_scale_0", TORCH_BOX(&scale)); }
STABLE_TORCH_LIBRARY_IMPL(fusegen, CPU, library) { library.impl("NAME_scale_0", TORCH_BOX(&copy)); }

std::string schema() { return "(Tensor x) -> Tensor"; }
// More than the first buffer of whoever asks.
int64_t explain(const fusegen::Call* call, char* text, int64_t size) {
  const int64_t bytes = 1 + call->rows;
  const char letter = char('a' + call->mode + call->channels * call->groups);
  for (int64_t i = 0; i < bytes && i < size; ++i) text[i] = i + 1 == bytes ? 0 : letter;
  return bytes;
}
int64_t explain_product(const fusegen::Call*, char* text, int64_t) {
  text[0] = 'p', text[1] = 0;
  return 2;
}
// The first is of no program.
constexpr fusegen::PackageOp kOps[] = {
    {"NAME_copy", &schema, TORCH_BOX(&copy)},
    {"NAME_scale", &schema, TORCH_BOX(&scale), "NAME_scale", &explain, &explain_product}};
constexpr const char* kTargets[] = {"sm_80", "sm_90a", nullptr};
const fusegen::PackageInfo fusegen_package_info{
    "NAME", "0", "fusegen sources NAME 0", kOps, 2, kTargets, false};
"""

# A process of its own: what is loaded and registered stays so.
USE = """
import importlib.util, sys, torch
name, path, device = sys.argv[1:]
torch.ops.load_library(path)
x = torch.arange(1000.0, device=device)
assert torch.equal(getattr(torch.ops.fusegen, name + "_scale_0")(x), x if device == "cpu" else 3 * x)
spec = importlib.util.spec_from_file_location("_C", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
assert module.__doc__ == "Fused kernels of " + name
info = {"name": name, "sources": f"fusegen sources {name} 0"}
info |= {"ops": (name + "_copy_0", name + "_scale_0"), "targets": ("sm_80", "sm_90a"), "float64": False}
assert module.info() == info and list(module.info()) == list(info), module.info()
assert module.explain(name + "_scale", 1, 3, 2) == "ddd"
assert module.explain(name + "_scale", mode=0, rows=5000, channels=1, groups=2) == 5000 * "c"
assert module.explain(name + "_scale_product", 1, 3, 2) == "p"
for other in ("other", name + "_copy", name + "_copy_product"):
    try:
        module.explain(other, 0, 1, 1)
    except KeyError:
        continue
    raise AssertionError(other)
print("used")
"""


INFO = """
import ctypes, importlib.util, sys, torch
for path in sys.argv[1:]:
    ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
for path in sys.argv[1:]:
    # Not both as `_C`: pybind11 keeps modules by name.
    spec = importlib.util.spec_from_file_location(path.split("/")[-2] + "._C", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    print(module.info()["name"])
"""


@pytest.fixture(scope="module")
def generated(tmp_path_factory) -> Path:
    """The directory of a package `small`, built; with the machine's own way to nvcc."""
    root = tmp_path_factory.mktemp("extension") / "generated"
    write_package(root, "small")
    build_extension(root / "small", targets=["sm_80", "sm_90a"])
    return root


def write_package(root: Path, name: str) -> Path:
    (root / name).mkdir(parents=True)
    (root / "support").mkdir(exist_ok=True)
    for file in ("python_module.cpp", "package_info.h", "call.h"):
        shutil.copy(templates_directory() / "support" / file, root / "support")
    (root / "support" / "factor.cuh").write_text("#pragma once\nconstexpr float kFactor = 3;\n")
    (root / name / "kernels.cu").write_text(KERNELS.replace("NAME", name))
    (root / name / "bindings.cpp").write_text(BINDINGS.replace("NAME", name))
    return root / name


def use(output: Path, device: str) -> None:
    command = [sys.executable, "-c", USE, output.parent.name, str(output), device]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "used\n", done.stderr


def test_loads_without_a_gpu(generated: Path) -> None:
    use(generated / "small" / "_C.so", "cpu")


@pytest.mark.gpu
def test_runs_on_a_gpu(generated: Path) -> None:
    use(generated / "small" / "_C.so", "cuda")


def test_another_package_has_the_same_python_module_and_its_own_info(generated: Path) -> None:
    """Even where symbols of one extension are seen by the other."""
    names = ("small", "other")
    text = io.StringIO()
    build_extension(
        write_package(generated, names[1]), targets=["sm_80", "sm_90a"], console=Console(file=text, width=200)
    )
    assert "bindings.cpp" in text.getvalue() and "python_module.cpp" not in text.getvalue()
    paths = [generated / name / "_C.so" for name in names]
    done = subprocess.run([sys.executable, "-c", INFO, *map(str, paths)], capture_output=True, text=True)
    assert done.stdout.split() == list(names), done.stderr


def test_nothing_to_do_the_second_time(generated: Path) -> None:
    assert not build_extension(generated / "small", targets=["sm_80", "sm_90a"]).built


def test_object_keeps_no_path_of_this_machine(generated: Path) -> None:
    content = (generated / "small" / "_C.so").read_bytes()
    for path in (generated, Path(torch.__file__).parent, Path(sys.prefix)):
        assert os.fsencode(path) not in content
    if shutil.which("readelf"):
        dynamic = subprocess.run(
            ["readelf", "-d", generated / "small" / "_C.so"], capture_output=True, text=True, check=True
        ).stdout
        assert "libtorch_cpu.so" in dynamic
        assert "RPATH" not in dynamic and "RUNPATH" not in dynamic and "libcudart" not in dynamic


def test_object_demands_nothing_that_newer_pythons_lack(generated: Path) -> None:
    """Python 3.13 has no _PyThreadState_UncheckedGet, which pybind11 calls in older ones."""
    command = ["nm", "-D", "--undefined-only", generated / "small" / "_C.so"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    kinds = {name: kind for kind, name in map(str.split, lines)}
    assert kinds["PyErr_SetString"] == "U" and kinds.get("_PyThreadState_UncheckedGet", "w") == "w"


@pytest.mark.parametrize("origin", ["pip wheels", "PATH"])
def test_each_way_to_nvcc(tmp_path: Path, monkeypatch, origin: str) -> None:
    for variable in ("FUSEGEN_NVCC", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    if origin == "PATH":
        monkeypatch.setattr(toolchain, "_wheel_roots", lambda: [])
        if shutil.which("nvcc") is None:
            pytest.skip("no nvcc on PATH")
    elif not toolchain._wheel_candidates():
        pytest.skip("no CUDA wheels in this environment")
    assert toolchain.find_toolchain().nvcc.origin == origin
    package = write_package(tmp_path / "generated", "way")
    build_extension(package, targets=["sm_90"])
    use(package / "_C.so", "cpu")


def test_compiler_message_reaches_the_user(generated: Path) -> None:
    source = generated / "small" / "kernels.cu"
    before, good = (generated / "small" / "_C.so").read_bytes(), source.read_text()
    source.write_text(good.replace("kFactor *", "kFacto *"))
    try:
        with pytest.raises(BuildError) as raised:
            build_extension(generated / "small", targets=["sm_80", "sm_90a"])
    finally:
        source.write_text(good)
    assert 'identifier "kFacto" is undefined' in str(raised.value)
    assert raised.value.command is not None and "kernels.cu" in raised.value.command
    assert (generated / "small" / "_C.so").read_bytes() == before
