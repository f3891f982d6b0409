"""Portable extensions: without what serves one Python or one torch alone."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from fusegen.build import builder, find_toolchain
from fusegen.build.flags import link_flags
from fusegen.paths import MODULE_SOURCE


@pytest.fixture
def sources(workshop) -> None:
    support = workshop.root / "generated" / "support"
    (support / MODULE_SOURCE).write_text("module\n")
    (support / "autograd.cpp").write_text("autograd\n")


def test_without_the_python_module_and_the_autograd_library(workshop, sources) -> None:
    assert workshop.build(portable=True).built
    assert workshop.output.read_text() == "kernels\nbindings\n"
    assert not [line for line in workshop.started() if MODULE_SOURCE in line or "autograd.cpp" in line]
    assert not workshop.build(portable=True).built


def test_one_or_the_other(workshop, sources) -> None:
    """A package is one of both, and the objects that are alike serve both."""
    workshop.build()
    assert workshop.output.read_text() == "kernels\nbindings\nmodule\n"
    workshop.forget()
    assert workshop.build(portable=True).built
    assert workshop.output.read_text() == "kernels\nbindings\n"
    assert len(workshop.started()) == 1  # the link
    assert workshop.build().built


def test_another_python_gives_the_same(workshop, sources, monkeypatch) -> None:
    workshop.build(portable=True)
    (workshop.root / "generated" / "support" / MODULE_SOURCE).write_text("other\n")
    other = replace(workshop.libraries, python_version="cpython 4", python_include=workshop.root / "other")
    monkeypatch.setattr(builder, "find_libraries", lambda: other)
    assert not workshop.build(portable=True).built
    assert workshop.build().built


@pytest.mark.nvcc
def test_the_cpp_library_comes_before_torch(tmp_path: Path) -> None:
    """Some versions of torch export functions of it. What is taken from there has no version, and is not in others."""
    cxx = find_toolchain().cxx
    before, libraries = link_flags()
    exporting, using = tmp_path / "torch.cpp", tmp_path / "using.cpp"
    exporting.write_text("namespace std { void __throw_length_error(const char*) { __builtin_trap(); } }\n")
    using.write_text(
        "namespace std { void __throw_length_error(const char*); }\nvoid f() { std::__throw_length_error(0); }\n"
    )
    run = {"cwd": tmp_path, "check": True}
    subprocess.run([cxx, "-shared", "-fPIC", exporting, "-o", "libtorch_cpu.so"], **run)
    static = find_toolchain().nvcc.library_flags()
    subprocess.run([cxx, *before, "-fPIC", using, "-o", "using.so", "-L.", *static, *libraries], **run)
    assert shutil.which("nm")
    symbols = subprocess.run(["nm", "-D", "using.so"], capture_output=True, text=True, **run).stdout
    assert "__throw_length_errorPKc@GLIBCXX_3.4" in symbols
