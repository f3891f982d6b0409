"""Generated programs as nvcc compiles them for a GPU: the emulator's compiler accepts more."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fusegen.build.flags import nvcc_flags
from fusegen.build.toolchain import find_toolchain
from fusegen.plan.load import planned_document
from fusegen.render.output import write_files
from fusegen.render.package import render_all
from fusegen.spec.yaml import parse_yaml

HEAD = """\
fusegen: 1
name: made
dims: {rows: 64, columns: 96}
inputs: {x: [rows, columns]%s}
dtypes: [float32]
chain:
"""


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("inputs", "chain"),
    [
        ("", "  - {op: tanh}\n  - {op: logsumexp, dim: 1, keepdim: false}\n"),
        (", target: [rows]", "  - {op: cross_entropy, target: target}\n"),
    ],
    ids=["sums of rows", "loss"],
)
def test_a_forward_program_that_stores_no_elements_compiles(inputs: str, chain: str, tmp_path: Path) -> None:
    write_files(render_all([planned_document(parse_yaml(HEAD % inputs + chain, "made.yaml"))]), tmp_path)
    source = tmp_path / "made" / "kernels.cu"
    options = ["-DFUSEGEN_FORWARD_ONLY", f"-I{tmp_path / 'support'}", "-c", source, "-o", tmp_path / "made.o"]
    command = [find_toolchain().nvcc.path, *nvcc_flags(["sm_90"], False), *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=source.parent)
    assert done.returncode == 0, done.stderr
