"""Builds in directories whose names have a meaning for a shell, for ninja or for an encoding."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusegen.build import BuildError, build_extension

NAMES = ["a$HOME", "$(touch touched)", "a b", "a:b", "a'b\"c", "a\nb", "Ä", "\udcff", "-o"]


@pytest.fixture(params=NAMES, ids=ascii)
def moved(request, workshop) -> Path:
    """The package, in a directory of that name. nvcc has a shell start its tools, which expands what it is given."""
    nvcc = workshop.root / "bin" / "nvcc"
    script = nvcc.read_text()
    nvcc.write_text(script.replace("#!/bin/sh\n", '#!/bin/sh\neval "set -- $*"\n', 1))
    (workshop.root / request.param).mkdir()
    (workshop.root / "generated").rename(workshop.root / request.param / "generated")
    return workshop.root / request.param / "generated" / "chain"


def test_the_directory_of_the_packages(moved: Path) -> None:
    assert build_extension(moved, targets=["sm_90"]).built
    assert (moved / "_C.so").read_text() == "kernels\nbindings\n"
    assert not build_extension(moved, targets=["sm_90"]).built
    assert not list(moved.parent.parent.rglob("touched"))


def test_an_error_names_the_compiler_and_the_place(moved: Path) -> None:
    (moved / "kernels.cu").write_text("BROKEN\n")
    with pytest.raises(BuildError) as raised:
        build_extension(moved, targets=["sm_90"])
    assert raised.value.message == "building failed: chain: kernels.cu" and "BROKEN is undefined" in raised.value.output
    assert "nvcc" in str(raised.value.command) and moved.name in str(raised.value.command)


def test_a_store_that_is_a_link(workshop, tmp_path_factory) -> None:
    """Such as to a faster disk: paths from one to the other go by where it is."""
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "a" / "b"
    elsewhere.mkdir(parents=True)
    (workshop.root / "generated" / ".build").symlink_to(elsewhere)
    workshop.build()
    assert workshop.output.read_text() == "kernels\nbindings\n" and list(elsewhere.glob("chain/*.o"))
