"""The key changes with everything that decides the output, and with nothing else."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fusegen.build import BuildError, find_toolchain
from fusegen.build.key import Inputs, collect_inputs
from fusegen.build.libraries import OLDEST_TORCH
from fusegen.paths import MODULE_SOURCE, templates_directory

INCLUDES = '#include "launchers.h"\n#include "../support/launch.cuh"\n'


@pytest.fixture(autouse=True)
def headers(workshop) -> None:
    """The kernels include a header of the package and one that packages share, and this one another."""
    support = workshop.root / "generated" / "support"
    (workshop.package / "kernels.cu").write_text(INCLUDES)
    (workshop.package / "launchers.h").write_text("launchers\n")
    (support / "launch.cuh").write_text('#include "kernels/further.cuh"\n')
    (support / "kernels").mkdir()
    (support / "kernels" / "further.cuh").write_text("further\n")


def inputs_of(workshop, **changes) -> Inputs:
    options = {
        "targets": ["sm_90"],
        "verification": False,
        "toolchain": find_toolchain(),
        "libraries": workshop.libraries,
        "environment": {},
        **changes,
    }
    return collect_inputs(workshop.package, **options)


def test_same_inputs_same_key(workshop) -> None:
    first = inputs_of(workshop)
    os.utime(workshop.package / "kernels.cu", (1, 1))
    (workshop.package / "__init__.py").write_text("# not compiled\n")
    (workshop.package / "plan.json").write_text("{}\n")
    assert inputs_of(workshop).key == first.key
    assert inputs_of(workshop, targets=["sm_90", "sm_90"]).key == first.key


CHANGES: dict[str, Callable[[Path], object]] = {
    "kernels": lambda root: (root / "generated/chain/kernels.cu").write_text("other\n"),
    "bindings": lambda root: (root / "generated/chain/bindings.cpp").write_text("other\n"),
    "second source": lambda root: (root / "generated/chain/backward.cu").write_text("more\n"),
    "package header": lambda root: (root / "generated/chain/launchers.h").write_text("other\n"),
    "support header": lambda root: (root / "generated/support/launch.cuh").write_text("other\n"),
    "header of a header": lambda root: (root / "generated/support/kernels/further.cuh").write_text("other\n"),
    "missing header": lambda root: (root / "generated/support/kernels/further.cuh").unlink(),
    "Python module": lambda root: (root / "generated/support" / MODULE_SOURCE).write_text("module\n"),
    "nvcc": lambda root: os.utime(root / "bin/nvcc", (1, 1)),
    "host compiler": lambda root: os.utime(root / "bin/g++", (1, 1)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_file_changes_key(workshop, change) -> None:
    before = inputs_of(workshop).key
    change(workshop.root)
    assert inputs_of(workshop).key != before


@pytest.mark.parametrize(
    "path", ["support/other.cuh", "support/kernels/other.cuh", "chain/other.h", "other/kernels.cu"]
)
def test_what_is_not_included_changes_no_key(workshop, path: str) -> None:
    """Such as what only another package of the directory uses."""
    before = inputs_of(workshop).key
    file = workshop.root / "generated" / path
    file.parent.mkdir(exist_ok=True)
    file.write_text("other\n")
    assert inputs_of(workshop).key == before


@pytest.mark.parametrize(
    "changes",
    [
        {"targets": ["sm_80"]},
        {"targets": ["sm_90", "sm_80"]},
        {"targets": ["sm_90a"]},
        {"verification": True},
        {"environment": {"NVCC_APPEND_FLAGS": "--use_fast_math"}},
    ],
    ids=str,
)
def test_option_changes_key(workshop, changes) -> None:
    assert inputs_of(workshop, **changes).key != inputs_of(workshop).key


@pytest.mark.parametrize("field", ["torch_version", "python_version"])
def test_library_changes_key(workshop, field: str) -> None:
    other = dataclasses.replace(workshop.libraries, **{field: "other"})
    assert inputs_of(workshop, libraries=other).key != inputs_of(workshop).key


def test_key_holds_no_path(workshop) -> None:
    assert str(workshop.root) not in repr(dict(inputs_of(workshop).parts))


def test_the_binding_targets_the_oldest_torch() -> None:
    """One byte each for major, minor and patch, from the top, as torch/headeronly/version.h has it."""
    glue = (templates_directory() / "support" / "torch_glue.h").read_text()
    encoded = f"0x{OLDEST_TORCH[0] << 56 | OLDEST_TORCH[1] << 48:016x}ULL"
    assert f"#define TORCH_TARGET_VERSION {encoded}" in glue


def test_no_source_has_both_pybind11_and_the_torch_target() -> None:
    """torch 2.11's pybind11 does not compile behind it."""
    templates = templates_directory()
    module = (templates / "support" / MODULE_SOURCE).read_text()
    assert "#include <pybind11/" in module and '"torch_glue.h"' not in module
    for path in (templates / "bindings.cpp.j2", *(templates / "support").glob("*.h")):
        assert "#include <pybind11/" not in path.read_text(), path


def test_objects_depend_on_what_they_see(workshop) -> None:
    def names(**changes) -> list[str]:
        inputs = inputs_of(workshop, **changes)
        return [inputs.object_name(source) for source in (*inputs.cuda, *inputs.cxx)]

    kernels, bindings = names()
    assert names(targets=["sm_80"])[0] != kernels and names(targets=["sm_80"])[1] == bindings
    other = dataclasses.replace(workshop.libraries, torch_version="2.10.0")
    assert names(libraries=other)[0] == kernels and names(libraries=other)[1] != bindings
    assert names(libraries=dataclasses.replace(workshop.libraries, python_version="other")) == [kernels, bindings]
    (workshop.package / "bindings.cpp").write_text("other\n")
    assert names()[0] == kernels and names()[1] != bindings
    bindings = names()[1]
    # The binding has the digest of all sources, in which lines that are comments do not count.
    (workshop.root / "generated/support/launch.cuh").write_text('#include "kernels/further.cuh"\n// other\n')
    assert names()[0] != kernels and names()[1] == bindings
    (workshop.root / "generated/support/launch.cuh").write_text("other\n")
    assert names()[1] != bindings
    kernels, bindings = names()
    (workshop.root / "generated/support" / MODULE_SOURCE).write_text("module\n")
    assert names()[0] == kernels and names()[1] != bindings


def test_the_python_modules_object_is_the_same_for_all_packages(workshop) -> None:
    (workshop.root / "generated" / "support" / MODULE_SOURCE).write_text('#include "package_info.h"\n')

    def name(**changes) -> str:
        inputs = inputs_of(workshop, **changes)
        [unit] = inputs.shared
        return inputs.object_name(unit)

    first = name()
    for file in ("kernels.cu", "bindings.cpp", "own.h"):
        (workshop.package / file).write_text("another package's\n")
    (workshop.root / "generated/support/launch.cuh").write_text("another package's\n")
    assert name(targets=["sm_80"], verification=True, environment={"NVCC_APPEND_FLAGS": "-lineinfo"}) == first
    for field in ("torch_version", "python_version"):
        assert name(libraries=dataclasses.replace(workshop.libraries, **{field: "other"})) != first
    (workshop.root / "generated" / "support" / "package_info.h").write_text("more\n")
    second = name()
    (workshop.root / "generated" / "support" / MODULE_SOURCE).write_text("other\n")
    assert len({first, second, name()}) == 3


def test_package_without_sources_is_refused(workshop) -> None:
    (workshop.package / "kernels.cu").unlink()
    with pytest.raises(BuildError, match="no generated sources"):
        inputs_of(workshop)
