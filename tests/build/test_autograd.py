"""The library that differentiates the ops: built beside packages, by a key of its own, and never the end of a build."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from fusegen.build import build_extension


@pytest.fixture
def source(workshop):
    """Its source, in the workshop's `support`."""
    path = workshop.root / "generated" / "support" / "autograd.cpp"
    path.write_text("autograd\n")
    return path


def build(workshop, **options) -> tuple[bool, str]:
    """Whether the package was built, and what was said."""
    text = io.StringIO()
    console = Console(file=text, width=200)
    result = build_extension(workshop.root / "generated" / "chain", targets=["sm_90"], console=console, **options)
    return result.built, text.getvalue()


def library(source):
    return source.with_name("_autograd.2.13.0.so")


def test_built_once_beside_the_package(workshop, source) -> None:
    built, said = build(workshop)
    assert built and library(source).read_text() == "autograd\n"
    assert "support/autograd.cpp: built in" in said
    assert build(workshop) == (False, "")


def test_its_source_is_no_part_of_packages(workshop, source) -> None:
    build(workshop)
    source.write_text("other\n")
    built, said = build(workshop)
    assert not built and library(source).read_text() == "other\n"
    assert "support/autograd.cpp: building (changed: source autograd.cpp)" in said and "chain" not in said


@pytest.mark.parametrize("file", ["_autograd.2.13.0.so", "_autograd.2.13.0.key"])
def test_built_again_when_it_is_gone(workshop, source, file) -> None:
    build(workshop)
    source.with_name(file).unlink()
    built, said = build(workshop)
    assert not built and "support/autograd.cpp: built in" in said
    assert library(source).exists() and build(workshop) == (False, "")


def test_force_builds_it_too(workshop, source) -> None:
    build(workshop)
    assert "support/autograd.cpp: building (forced)" in build(workshop, force=True)[1]


def test_the_build_goes_on_without_it(workshop, source) -> None:
    source.write_text("BROKEN\n")
    built, said = build(workshop)
    assert built and "chain: built in" in said
    assert "support/autograd.cpp: cannot be compiled with this torch" in said
    assert "error: BROKEN is undefined" in said
    assert not library(source).exists() and not list(source.parent.glob("*.part"))
    assert build(workshop) == (False, "")  # and is not tried again
    source.write_text("repaired\n")
    assert "support/autograd.cpp: built in" in build(workshop)[1] and library(source).exists()


def test_what_no_longer_compiles_is_removed(workshop, source) -> None:
    build(workshop)
    source.write_text("BROKEN\n")
    build(workshop)
    assert not library(source).exists()


def test_a_directory_without_the_source(workshop) -> None:
    assert build(workshop)[0]
    assert not list((workshop.root / "generated" / "support").glob("_autograd*"))


def test_it_is_compiled_after_large_kernels_and_before_bindings(workshop, source, monkeypatch) -> None:
    """On one core; last, all others would wait for it."""
    (workshop.package / "kernels.cu").write_text("kernels " * 10_000)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    build(workshop)
    compiled = [line for line in workshop.started() if " -c " in line or source.name in line]
    sources = ("kernels.cu", source.name, "bindings.cpp")
    assert [next(name for name in sources if name in line) for line in compiled] == list(sources)
