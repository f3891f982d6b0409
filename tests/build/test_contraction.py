"""The contraction: a source in `support`, compiled once for all packages of equal targets whose bindings call it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fusegen.build import BuildError, Request, build_extensions, find_toolchain
from fusegen.build.flags import contraction_flags
from fusegen.build.key import CONTRACTION_HEADER, CONTRACTION_SOURCE, PRODUCT_LAUNCHER, collect_inputs
from fusegen.paths import templates_directory
from fusegen.plan.launches.devices import DEVICES

NAME = "contraction.cu"
SOURCE = '#include "../launch.cuh"\n#include "split.cuh"\ncontraction\n'
CALLS = f'#include "../support/{CONTRACTION_HEADER}"\n'


@pytest.fixture
def source(workshop) -> Path:
    """Its source, which the workshop's package links."""
    path = workshop.root / "generated" / "support" / CONTRACTION_SOURCE
    path.parent.mkdir()
    path.write_text(SOURCE)
    path.with_name("split.cuh").write_text("split\n")
    (workshop.package / "bindings.cpp").write_text(CALLS)
    return path


def build(*packages: Path, targets=("sm_90",), **options):
    return build_extensions([Request(package, targets) for package in packages], **options)


def compiled(workshop) -> list[str]:
    """The command lines that compiled it."""
    return [line for line in workshop.started() if f"-c {NAME}" in line]


def object_names(workshop, **changes) -> dict[str, str]:
    options = {"targets": ["sm_90"], "verification": False, "toolchain": find_toolchain()}
    inputs = collect_inputs(workshop.package, libraries=workshop.libraries, **{**options, **changes})
    return {str(unit): inputs.object_name(unit) for unit in inputs.units}


def test_once_for_all_packages_that_call_it(workshop, source) -> None:
    other, without = workshop.add("other", "other"), workshop.add("without", "without")
    (other / "bindings.cpp").write_text(CALLS)
    build(workshop.package, other, without)
    (line,) = compiled(workshop)
    assert line.startswith("nvcc ") and "code=sm_90a" in line and "code=sm_90 " not in line
    assert "FUSEGEN_VERIFICATION" not in line
    assert (other / "_C.so").read_text() == f"other kernels\n{CALLS}{SOURCE}"
    assert workshop.output.read_text() == f"kernels\n{CALLS}{SOURCE}"
    assert (without / "_C.so").read_text() == "without kernels\nwithout bindings\n"


def test_once_for_each_set_of_targets(workshop, source) -> None:
    other = workshop.add("other", "other")
    (other / "bindings.cpp").write_text(CALLS)
    build_extensions([Request(workshop.package, ["sm_90"]), Request(other, ["sm_80", "sm_90"])])
    assert len(compiled(workshop)) == 2
    workshop.forget()
    build(other, targets=["sm_90"])  # from the store of the first
    assert compiled(workshop) == []


def test_a_change_of_it_compiles_nothing_else(workshop, source) -> None:
    build(workshop.package)
    workshop.forget()
    source.with_name("split.cuh").write_text("changed\n")
    (result,) = build(workshop.package)
    assert result.reason == "changed: support contraction/split.cuh"
    assert len(compiled(workshop)) == 1
    assert not any("-c kernels.cu" in line for line in workshop.started())


def test_its_object_depends_on_what_it_sees(workshop, source) -> None:
    before = object_names(workshop)
    (workshop.package / "kernels.cu").write_text("other\n")
    (workshop.package / "own.h").write_text("other\n")
    assert object_names(workshop, verification=True)[NAME] == before[NAME]
    assert object_names(workshop, targets=["sm_80"])[NAME] != before[NAME]
    (workshop.root / "generated/support/launch.cuh").write_text("other\n")
    second = object_names(workshop)[NAME]
    source.with_name("split.cuh").write_text("other\n")
    third = object_names(workshop)[NAME]
    source.write_text("other\n")
    assert len({before[NAME], second, third, object_names(workshop)[NAME]}) == 4


def test_kernels_in_its_epilogue_are_compiled_as_it_is(workshop, source) -> None:
    """And again when it changes: they include it."""
    text = f'#include "../support/contraction/split.cuh"\n{PRODUCT_LAUNCHER.decode()}(forward, Forward)\n'
    (workshop.package / "kernels.cu").write_text(text)
    build(workshop.package)
    (line,) = [line for line in workshop.started() if "-c kernels.cu" in line]
    assert "code=sm_90a" in line and "code=sm_90 " not in line and "-DFUSEGEN_SM_90A" in line
    workshop.forget()
    source.with_name("split.cuh").write_text("changed\n")
    build(workshop.package)
    assert len([line for line in workshop.started() if "-c kernels.cu" in line]) == 1


def test_it_has_to_be_there(workshop, source) -> None:
    source.unlink()
    with pytest.raises(BuildError, match=f"{NAME}: No such file"):
        build(workshop.package)


@pytest.mark.nvcc
@pytest.mark.parametrize("target", [next(iter(DEVICES)), "sm_90"])
def test_the_source_compiles_as_every_build_has_it(target: str, tmp_path: Path) -> None:
    """For the oldest target, too; and device code calls no constexpr function of the host's."""
    source = templates_directory() / "support" / CONTRACTION_SOURCE
    flags = [flag for flag in contraction_flags([target]) if flag != "--expt-relaxed-constexpr"]
    command = [find_toolchain().nvcc.path, *flags, "-Werror", "all-warnings", "-c", source, "-o", tmp_path / "made.o"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
