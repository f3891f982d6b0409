"""From targets to -gencode, and what no build may have."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from fusegen.build import BuildError, find_toolchain
from fusegen.build.flags import contraction_flags, cxx_flags, gencode, link_flags, nvcc_flags


@pytest.mark.parametrize(
    "targets, machine, ptx",
    [
        (["sm_90"], ["compute_90,code=sm_90"], "compute_90"),
        (["sm_90", "sm_80"], ["compute_80,code=sm_80", "compute_90,code=sm_90"], "compute_90"),
        # As text sm_100 would come before sm_90.
        (["sm_100", "sm_90"], ["compute_90,code=sm_90", "compute_100,code=sm_100"], "compute_100"),
        (["sm_80", "sm_90a"], ["compute_80,code=sm_80", "compute_90a,code=sm_90a"], "compute_90"),
        (["sm_90", "sm_90"], ["compute_90,code=sm_90"], "compute_90"),
    ],
)
def test_gencode(targets: list[str], machine: list[str], ptx: str) -> None:
    *code, last = gencode(targets)
    assert code == [f"-gencode=arch={one}" for one in machine]
    assert last == f"-gencode=arch={ptx},code={ptx}"


@pytest.mark.parametrize(
    "targets, machine",
    [
        (["sm_90"], ["compute_90a,code=sm_90a"]),
        (["sm_90", "sm_90a"], ["compute_90a,code=sm_90a"]),
        (["sm_100", "sm_90", "sm_80"], ["compute_80,code=sm_80", "compute_90a,code=sm_90a", "compute_100,code=sm_100"]),
        (["sm_100"], ["compute_100,code=sm_100"]),
    ],
)
def test_the_contraction_has_code_for_sm_90a_in_place_of_sm_90(targets: list[str], machine: list[str]) -> None:
    found = [flag for flag in contraction_flags(targets) if "gencode" in flag]
    assert found[:-1] == [f"-gencode=arch={one}" for one in machine]
    assert found[-1] == gencode(targets)[-1]  # PTX for whatever is newer


@pytest.mark.parametrize("target", ["", "90", "compute_90", "sm_9", "sm_90b", "sm_90 ", "sm_90;ls"])
def test_no_target(target: str) -> None:
    with pytest.raises(BuildError, match="is no target"):
        gencode([target])


def test_no_targets_at_all() -> None:
    with pytest.raises(BuildError, match="no targets"):
        gencode([])


def test_verification_reaches_both_compilers() -> None:
    for flags in (nvcc_flags(["sm_90"], True), cxx_flags(True)):
        assert "-DFUSEGEN_VERIFICATION" in flags
    for flags in (nvcc_flags(["sm_90"], False), cxx_flags(False)):
        assert "-DFUSEGEN_VERIFICATION" not in flags


def test_neither_fast_math_nor_rpath() -> None:
    everything = " ".join([*nvcc_flags(["sm_90"], True), *cxx_flags(True), *link_flags()[0], *link_flags()[1]])
    assert "fast" not in everything and "rpath" not in everything


@pytest.mark.nvcc
def test_device_code_is_optimised_in_full(tmp_path: Path) -> None:
    """The -O of the host compiler must stay its own."""
    source = tmp_path / "kernels.cu"
    source.write_text("__global__ void kernel() {}\n")
    command = [find_toolchain().nvcc.path, *nvcc_flags(["sm_90"], False), "--dryrun", "-c", source]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stderr.splitlines()
    device = [line for line in lines if re.search(r"\b(cicc|ptxas)\b", line)]
    assert len(device) >= 2
    assert not any(re.search(r" -(-O|O)", line) for line in device)
    assert any(" -Og " in line for line in lines)
