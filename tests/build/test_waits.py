"""Every kernel waits for those before it, whose ends its launch may overlap with, before it touches any memory."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from fusegen.build.toolchain import find_toolchain
from fusegen.paths import SUPPORT, templates_directory
from fusegen.plan.load import planned_document
from fusegen.render.output import write_files
from fusegen.render.package import render_all
from fusegen.spec.yaml import parse_yaml

GENERATED = Path(__file__).resolve().parents[2] / "generated"
KERNELS = templates_directory() / SUPPORT / "kernels"
FILES = sorted(path.name for path in KERNELS.glob("*.cuh") if "__global__ " in path.read_text(encoding="utf-8"))
DECLARATION = re.compile(r"\s*((using|static_assert|constexpr)\b|//)")
WAIT = "griddepcontrol.wait"
ACCESS = re.compile(r"\b(?:ld|st|cp\.async|red|atom)\.(?!param|shared)")


def early(ptx: str) -> tuple[int, list[str]]:
    """How many kernels there are, and those that may touch memory before they have waited."""
    _, *kernels = ptx.split(".entry ")
    found = []
    for kernel in kernels:
        access, wait = ACCESS.search(kernel), kernel.find(WAIT)
        if wait < 0 or (access and access.start() < wait):
            found.append(kernel.split("(")[0])
    return len(kernels), found


@pytest.mark.parametrize("name", FILES)
def test_the_wait_is_each_kernels_first_statement(name: str) -> None:
    """Before it stands only what the compiler alone looks at."""
    _, *kernels = (KERNELS / name).read_text(encoding="utf-8").split("\n__global__ ")
    for kernel in kernels:
        first = next(line for line in kernel.split(") {\n", 1)[1].splitlines() if not DECLARATION.match(line))
        assert first == "  wait_for_earlier_kernels();", kernel.split("(")[0]


def test_every_kind_of_kernel_is_looked_at() -> None:
    text = "".join((KERNELS / name).read_text(encoding="utf-8") for name in FILES)
    assert text.count("\n__global__ ") == text.count("\n  wait_for_earlier_kernels();") == 18


GATED = """
fusegen: 1
name: gated
dims: {batch: 4, positions: 16, features: 32}
inputs: {x: [batch, positions, features], gate: [batch, features]}
dtypes: [float32, bfloat16]
chain:
  - {op: mul, input: gate}
"""


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("matmul_bn_bias_div_swish", 13),
        ("gemm_groupnorm_hardtanh", 15),
        ("conv2d_batchnorm_scaling", 20),
        ("batchnorm2d_add_relu", 20),
        ("gated", 3),
    ],
)
def test_the_compiler_moves_no_access_before_it(name: str, least: int, tmp_path: Path) -> None:
    """The backward passes of these have a kernel of every kind, in each dtype mode: the second is compiled."""
    source, target = GENERATED / name / "kernels.cu", tmp_path / "kernels.ptx"
    if name == "gated":
        write_files(render_all([planned_document(parse_yaml(GATED, "gated.yaml"))]), tmp_path)
        source = tmp_path / name / "kernels.cu"
    options = ["-std=c++17", "-O3", "-ptx", "-arch=compute_90", "-DFUSEGEN_BACKWARD_ONLY", "-DFUSEGEN_MODES=2u"]
    subprocess.run([find_toolchain().nvcc.path, *options, source, "-o", target], check=True, capture_output=True)
    count, found = early(target.read_text(encoding="utf-8"))
    assert count >= least and not found


def test_an_early_access_would_be_seen() -> None:
    access, wait = "ld.global.nc.f32 %f1, [%rd1];\n", f"{WAIT};\n"
    parameter = "ld.param.u64 %rd1, [x];\n"
    text = "".join(
        f".entry {name}({{\n{body}"
        for name, body in {
            "late": parameter + wait + access,
            "early": parameter + access + wait,
            "never": parameter + access,
            "none": wait,
        }.items()
    )
    assert early(text) == (4, ["early", "never"])
