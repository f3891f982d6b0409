"""What a compiled library takes from others, read from libraries that a C++ compiler makes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytest.importorskip("elftools")

from fusegen.build.toolchain import find_cxx  # noqa: E402
from fusegen.wheel.errors import WheelError  # noqa: E402
from fusegen.wheel.symbols import foreign_symbols, require_portable  # noqa: E402

pytestmark = pytest.mark.nvcc  # for its C++ compiler

PORTABLE = """
#include <stdexcept>
#include <string>
extern "C" int aoti_torch_get_dim(void*, long*);
extern "C" int torch_call_dispatcher(const char*);
extern "C" __attribute__((weak)) const char* torch_exception_get_what_without_backtrace();
int f(void* x, long* n) {
  if (aoti_torch_get_dim(x, n)) throw std::runtime_error(std::to_string(*n));
  return torch_exception_get_what_without_backtrace ? 0 : torch_call_dispatcher("aten::mul");
}
"""
FOREIGN = {
    "PyErr_Clear": 'extern "C" void PyErr_Clear(); void f() { PyErr_Clear(); }',
    "_Py_NoneStruct": 'extern "C" int _Py_NoneStruct; int* f() { return &_Py_NoneStruct; }',
    "_ZN2at4_ops3mul4callEv": "namespace at { namespace _ops { struct mul { static void call(); }; } }\n"
    "void f() { at::_ops::mul::call(); }",
    "_ZN3c105ErrorD1Ev": "namespace c10 { struct Error { ~Error(); }; } void f() { c10::Error(); }",
    "_ZN5torch3jit4loadEv": "namespace torch { namespace jit { void load(); } } void f() { torch::jit::load(); }",
    "torch_of_a_later_version": 'extern "C" void torch_of_a_later_version(); void f() { torch_of_a_later_version(); }',
    "cudaMalloc": 'extern "C" int cudaMalloc(); void f() { cudaMalloc(); }',
    # Taken from torch, which happens to export it: see test_portable.py.
    "_ZSt20__throw_length_errorPKc": "namespace std { void __throw_length_error(const char*); }\n"
    "void f() { std::__throw_length_error(0); }",
}


def compiled(directory: Path, text: str, *options: str, name: str = "_C.so") -> Path:
    _, cxx, _ = find_cxx({"PATH": "/usr/local/bin:/usr/bin:/bin"})
    source, output = directory / f"{name}.cpp", directory / name
    source.write_text(text)
    subprocess.run([cxx, "-shared", "-fPIC", source, "-o", output, *options], check=True)
    return output


def test_a_portable_one(tmp_path: Path) -> None:
    library = compiled(tmp_path, PORTABLE)
    assert foreign_symbols(library) == []
    require_portable([library])


@pytest.mark.parametrize("symbol", FOREIGN)
def test_one_symbol_too_many(symbol: str, tmp_path: Path) -> None:
    both = PORTABLE + FOREIGN[symbol].replace("f()", "g()")
    options = ["-nodefaultlibs", "-lc"] if symbol.startswith("_ZSt") else []
    text = FOREIGN[symbol] if options else both
    assert foreign_symbols(compiled(tmp_path, text, *options)) == [symbol]


def test_a_library_beside_those_of_the_run_time(tmp_path: Path) -> None:
    """Its functions have versions, too."""
    (tmp_path / "versions").write_text("OTHER_1 { global: other; local: *; };")
    script = f"-Wl,--version-script={tmp_path / 'versions'}"
    other = compiled(tmp_path, 'extern "C" void other() {}', script, "-Wl,-soname,libother.so.1", name="libother.so.1")
    library = compiled(tmp_path, 'extern "C" void other(); void f() { other(); }', str(other))
    assert foreign_symbols(library) == ["libother.so.1", "other"]
    # Nothing is taken of it, and the library would not load without it all the same.
    unused = compiled(tmp_path, PORTABLE, "-Wl,--no-as-needed", str(other))
    assert foreign_symbols(unused) == ["libother.so.1"]


def test_the_error_names_the_library_and_the_symbols(tmp_path: Path) -> None:
    text = (
        "".join(f'extern "C" void Py{n}();' for n in range(7))
        + "void f() {"
        + "".join(f"Py{n}();" for n in range(7))
        + "}"
    )
    good, bad = tmp_path / "good", tmp_path / "bad"
    for directory in (good, bad):
        directory.mkdir()
    libraries = [compiled(good, PORTABLE), compiled(bad, text)]
    with pytest.raises(WheelError, match=r"bad/_C\.so takes .*: Py0, Py1, Py2, Py3, Py4 and 2 more$"):
        require_portable(libraries)
