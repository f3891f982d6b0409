"""The Python module: a source in `support`, compiled once for all packages, whose object each links into its own."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from fusegen.build import BuildError, BuildResult, Request, build_extensions, placing

NAME = "python_module.cpp"


@pytest.fixture
def source(workshop) -> Path:
    """Its source, in the workshop's `support`."""
    path = workshop.root / "generated" / "support" / NAME
    path.write_text("module\n")
    return path


def build(*packages: Path, **options) -> list[BuildResult]:
    return build_extensions([Request(package, ["sm_90"]) for package in packages], **options)


def compiled(workshop) -> list[str]:
    """The sources compiled so far, by name."""
    return [words[words.index("-c") + 1] for words in map(str.split, workshop.started()) if "-c" in words]


def kept(workshop) -> list[Path]:
    return sorted((workshop.root / "generated" / ".build").glob("*/python_module.*"))


def test_once_for_two_packages_in_one_build(workshop, source, make_executable) -> None:
    # So slow that everything else has ended before: both links wait for it.
    script = (workshop.root / "bin" / "g++").read_text()
    slow = f'case "$*" in *{NAME}*) FAKE_SECONDS=1;; esac\n'
    make_executable(workshop.root / "bin" / "g++", script.replace("sleep", slow + "sleep"))
    other = workshop.add("other", "other")
    build(other, workshop.package)
    assert compiled(workshop).count(NAME) == 1
    assert workshop.output.read_text() == "kernels\nbindings\nmodule\n"
    assert (other / "_C.so").read_text() == "other kernels\nother bindings\nmodule\n"
    assert [path.parent.name for path in kept(workshop)] == ["chain", "other"]
    assert {path.read_text() for path in kept(workshop)} == {"module\n"}
    assert not any(result.built for result in build(other, workshop.package))


def test_a_later_package_takes_it_from_the_store_of_another(workshop, source) -> None:
    build(workshop.package)
    third, other = workshop.add("third", "third"), workshop.add("other", "other")
    workshop.forget()
    build(third, other)
    assert sorted(compiled(workshop)) == ["bindings.cpp"] * 2 + ["kernels.cu"] * 2
    assert (other / "_C.so").read_text() == "other kernels\nother bindings\nmodule\n"
    assert len(kept(workshop)) == 3  # whoever built it first may go


def test_a_store_that_has_gone(workshop, source, monkeypatch) -> None:
    """Before the build, or while its object is copied: then it is compiled."""
    build(workshop.package)
    [theirs] = kept(workshop)
    other = workshop.add("other", "other")
    copy = placing.shutil.copyfile

    def vanishing(path: Path, to: Path) -> None:
        if path == theirs:
            to.write_text("half")
            path.unlink()
        copy(path, to)

    monkeypatch.setattr(placing.shutil, "copyfile", vanishing)
    workshop.forget()
    build(other)
    assert not theirs.exists() and compiled(workshop).count(NAME) == 1
    assert (other / "_C.so").read_text() == "other kernels\nother bindings\nmodule\n"
    assert [path.read_text() for path in kept(workshop)] == ["module\n"]


def test_change_compiles_it_once_and_links_all(workshop, source) -> None:
    other = workshop.add("other", "other")
    build(workshop.package, other)
    workshop.forget()
    source.write_text("changed\n")
    results = build(workshop.package, other)
    assert [result.reason for result in results] == [f"changed: source {NAME}"] * 2
    # Bindings have the digest of all sources in the names of their ops.
    assert sorted(compiled(workshop)) == ["bindings.cpp", "bindings.cpp", NAME]
    assert workshop.output.read_text() == "kernels\nbindings\nchanged\n"
    assert (other / "_C.so").read_text() == "other kernels\nother bindings\nchanged\n"
    assert {path.read_text() for path in kept(workshop)} == {"changed\n"}


def test_force_compiles_it_once(workshop, source) -> None:
    other = workshop.add("other", "other")
    build(workshop.package, other)
    workshop.forget()
    build(workshop.package, other, force=True)
    assert sorted(compiled(workshop)) == ["bindings.cpp"] * 2 + ["kernels.cu"] * 2 + [NAME]


def test_failure_keeps_the_former_outputs_and_what_was_compiled(workshop, source) -> None:
    other = workshop.add("other", "other")
    build(workshop.package, other)
    former = workshop.output.read_text(), (other / "_C.so").read_text()
    source.write_text("BROKEN\n")
    (other / "bindings.cpp").write_text("new bindings\n")
    with pytest.raises(BuildError, match=f"building failed: support: {NAME}") as raised:
        build(workshop.package, other)
    assert raised.value.output == "kernels.cu(3): error: BROKEN is undefined"
    assert (workshop.output.read_text(), (other / "_C.so").read_text()) == former
    assert {path.read_text() for path in kept(workshop)} == {"module\n"}
    assert not list((workshop.root / "generated/.build").glob("*/work-*"))

    source.write_text("mended\n")
    build(workshop.package, other)
    assert workshop.output.read_text() == "kernels\nbindings\nmended\n"
    assert (other / "_C.so").read_text() == "other kernels\nnew bindings\nmended\n"


def test_it_is_kept_when_a_package_fails(workshop, source, monkeypatch) -> None:
    """On one core it is compiled first, in the directory of the package that fails then."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    bad = workshop.add("bad", "BROKEN")
    (bad / "bindings.cpp").write_text("fine\n")
    with pytest.raises(BuildError, match=r"building failed: bad: kernels\.cu"):
        build(bad, workshop.package)
    assert [path.parent.name for path in kept(workshop)] == ["bad", "chain"]
    (bad / "kernels.cu").write_text("mended\n")
    workshop.forget()
    build(bad, workshop.package)
    assert NAME not in compiled(workshop)
    assert (bad / "_C.so").read_text() == "mended\nfine\nmodule\n"


def test_it_is_compiled_after_large_kernels_and_before_bindings(workshop, source, monkeypatch) -> None:
    """On one core; last, all links would wait for it."""
    (workshop.package / "kernels.cu").write_text("kernels " * 10_000)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    build(workshop.package)
    assert compiled(workshop) == ["kernels.cu", NAME, "bindings.cpp"]


def test_progress_names_it_once(workshop, source) -> None:
    text = io.StringIO()
    build(workshop.package, workshop.add("other", "other"), console=Console(file=text, width=200))
    assert text.getvalue().splitlines().count(f"support: {NAME}") == 1
