"""The sources of an exported file, compiled as torch's builder compiles them. tests/gpu has the whole build."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from fusegen.build.toolchain import find_toolchain  # noqa: E402
from fusegen.emulate import compile_kernels  # noqa: E402
from fusegen.standalone.plan import standalone_plan  # noqa: E402
from fusegen.standalone.sources import cpp_source, cuda_source  # noqa: E402
from tests.export.emulated import EXTENSION  # noqa: E402

pytestmark = pytest.mark.nvcc

ROOT = Path(__file__).resolve().parents[2]
# What torch.utils.cpp_extension defines for every CUDA source.
NO_OPERATORS = [
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
]
# What a build of torch with CUDA generates, and one without lacks.
_CONFIGURED = "#define C10_CUDA_BUILD_SHARED_LIBS\n"


@pytest.mark.parametrize(
    ("standard", "name", "dtypes", "architecture"),
    [
        ("c++17", "gemm_multiply_leakyrelu_split", ["float32", "bfloat16"], "compute_90a"),
        ("c++20", "gemm_multiply_leakyrelu_split", ["float32", "float16"], "compute_80"),
        ("c++17", "transformer_mlp_prenorm", ["float32"], "compute_90a"),
    ],
)
def test_the_kernels(standard: str, name: str, dtypes: list[str], architecture: str, tmp_path: Path) -> None:
    source = tmp_path / "cuda.cu"
    source.write_text(cuda_source(standalone_plan(ROOT / "specs" / f"{name}.yaml", dtypes, "fp32_split")))
    command = [*find_toolchain().nvcc_command(), f"-std={standard}", "--expt-relaxed-constexpr", *NO_OPERATORS, "-ptx"]
    command += [f"-arch={architecture}", "-Werror=all-warnings", "-diag-suppress=177"]
    run([*command, "-DFUSEGEN_SM_90A", str(source), "-o", f"{source}.ptx"])
    text = Path(f"{source}.ptx").read_text()
    assert ".entry" in text
    assert ("wgmma" in text) == (architecture == "compute_90a")


def test_no_kernel_but_the_pointwise_one(emulation_cache: Path, tmp_path: Path) -> None:
    """What stands in for the headers of the others is enough for a host compiler, which looks at all templates."""
    source = cuda_source(standalone_plan(ROOT / "specs" / "gemm_multiply_leakyrelu.yaml", ["float32"]))
    assert "row_kernel(" not in source and "column_kernel(" not in source
    (tmp_path / "kernels.cu").write_text(source)
    compile_kernels(tmp_path / "kernels.cu", cache=emulation_cache, modes=[0])


def test_the_ops_for_cuda(tmp_path: Path) -> None:
    plan = standalone_plan(ROOT / "specs" / "gemm_multiply_leakyrelu.yaml")
    for name, text in (("torch/extension.h", EXTENSION), ("c10/cuda/impl/cuda_cmake_macros.h", _CONFIGURED)):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    source = tmp_path / "main.cpp"
    source.write_text(cpp_source(plan))
    torch_include = Path(torch.__file__).parent / "include"
    cuda_include = find_toolchain().nvcc.root / "include"
    includes = [tmp_path, torch_include, torch_include / "torch/csrc/api/include", cuda_include]
    flags = [*(f"-I{each}" for each in includes), f"-isystem{sysconfig.get_paths()['include']}"]
    run(
        [
            "g++",
            "-std=c++17",
            "-fsyntax-only",
            "-DTORCH_EXTENSION_NAME=made",
            "-DAT_PER_OPERATOR_HEADERS",
            *flags,
            str(source),
        ]
    )


def run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
