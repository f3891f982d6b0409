"""Objects that are kept: what a loss of power, a full disk or somebody has changed is no object any more."""

from __future__ import annotations

from pathlib import Path

import pytest


def objects(workshop, name: str = "chain") -> dict[str, Path]:
    """By their sources' names."""
    found = list((workshop.root / "generated" / ".build" / name).glob("*.o"))
    assert len({path.name.partition(".")[0] for path in found}) == len(found)
    return {path.name.partition(".")[0]: path for path in found}


@pytest.mark.parametrize("content", ["", "kern", "other\n"])
def test_a_damaged_object_is_compiled_again(workshop, content: str) -> None:
    workshop.build()
    before = objects(workshop)
    before["kernels"].write_text(content)
    workshop.output.unlink()
    workshop.forget()
    workshop.build()
    assert workshop.output.read_text() == "kernels\nbindings\n"
    assert len(workshop.started()) == 2, "the kernels and the link"
    assert objects(workshop) == before and before["kernels"].read_text() == "kernels\n"


def test_force_mends_what_a_damaged_object_was_linked_into(workshop) -> None:
    workshop.build()
    objects(workshop)["kernels"].write_text("")
    workshop.output.write_text("bindings\n")
    workshop.build(force=True)
    assert workshop.output.read_text() == "kernels\nbindings\n"
    assert objects(workshop)["kernels"].read_text() == "kernels\n"


def test_what_packages_share_is_not_taken_damaged(workshop) -> None:
    (workshop.root / "generated" / "support" / "python_module.cpp").write_text("module\n")
    workshop.build()
    other = workshop.add("other", "other")
    objects(workshop)["python_module"].write_text("")
    from fusegen.build import build_extension

    build_extension(other, targets=["sm_90"])
    assert (other / "_C.so").read_text() == "other kernels\nother bindings\nmodule\n"
    assert objects(workshop, "other")["python_module"].read_text() == "module\n"


def test_what_no_library_has_is_an_error_of_the_link(workshop) -> None:
    """Python's functions come from whoever loads the module: its other objects are linked without it before."""
    workshop.build()
    links = [line for line in workshop.started() if "-shared" in line]
    assert len(links) == 1 and "-Wl,--no-undefined" in links[0]
    (workshop.root / "generated" / "support" / "python_module.cpp").write_text("module\n")
    workshop.forget()
    workshop.build()
    tried, made = (line for line in workshop.started() if "-shared" in line)
    assert "-Wl,--no-undefined" in tried and "python_module" not in tried and "kernels" in tried
    assert "-Wl,--no-undefined" not in made and "python_module" in made
