"""A generated package that runs on the CPU: its own module and binding around the emulated kernels."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from filelock import FileLock

from fusegen.emulate.compiler import compile_kernels, engine_path
from fusegen.emulate.errors import EmulationBuildError
from fusegen.emulate.launchers import Kernels
from fusegen.emulate.precompiled import precompiled
from fusegen.paths import AUTOGRAD, MODULE_SOURCE, SUPPORT
from fusegen.render.files.includes import included_files
from fusegen.render.files.manifest import MANIFEST, digest, listed_sources, listed_specs, manifest_text, read_manifest

# Held while a package is imported: a thread that finds one finds the whole of it.
_importing = threading.RLock()
_TORCH_INCLUDE = re.compile(r"^#include <torch/.*$", re.MULTILINE)
_imported: dict[Path, ModuleType] = {}  # by the copy: packages of two directories that are alike share one


def emulate_package(
    package: Path,
    *,
    cache: Path,
    verification: bool = False,
    defines: Sequence[str] = (),
    checked: bool = True,
) -> ModuleType:
    """Imports a copy of `package` whose ops are registered for CPU tensors and launch the emulated kernels.

    package: a directory of a generated package. cache: where compiled objects are kept. verification: with the float64
    kernels. defines: macros of the kernels. checked: whether every access is looked at before it happens; without that
    the compiler takes less than half the time, and wrong results alone show a mistake. Of a module of several regions
    the package of each region is emulated first. Raises EmulationBuildError with the compiler's message. The kernels of
    a dtype mode are compiled when an op is first called in it; the sources stay as they are until then. One process can
    hold one emulated copy of a package, and none beside the real extension.
    """
    from fusegen.build.flags import cxx_flags, sources_flags
    from fusegen.build.key import sources_of

    name = f"fusegen_emulated_{_digest(str(package.parent.resolve()).encode())}_{package.name}"
    with _importing:
        if name in sys.modules:
            return sys.modules[name]
    if not (package / "kernels.cu").exists():
        for region in _regions(package):
            emulate_package(region, cache=cache, verification=verification, defines=defines, checked=checked)
        text = (package / "__init__.py").read_bytes()
        copy = cache / f"{package.name}-{_digest(text)}"
        copy.mkdir(parents=True, exist_ok=True)
        _write_module(copy, text, {})
        return _import(name, copy / "__init__.py")
    defines = [*defines, *(["FUSEGEN_VERIFICATION"] if verification else [])]
    directory, support = package.parent.resolve(), package.parent / SUPPORT
    kernels = Kernels(directory / package.name / "kernels.cu", directory, cache.resolve(), defines, checked)
    libraries = [engine_path(cache), *_contraction(package / "bindings.cpp", support, cache, defines)]
    sources = included_files(package / "bindings.cpp", package.parent)
    binding = _read(*(package.parent / path for path in sources), *_module_sources(support)) + kernels.key.encode()
    sources_digest = sources_of(package)
    text = (package / "__init__.py").read_bytes().replace(b'device="cuda"', b'device="cpu"')
    key = _digest(binding + text + "".join([sources_digest, *map(str, libraries)]).encode())
    copy = cache / f"{package.name}-{key}"
    copy.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f"{SUPPORT}.lock"):  # other processes that use the cache want the same
        python_module = _build_module(support, cache / SUPPORT)
        _build_autograd(support, cache / SUPPORT)
    if not (copy / "_C.so").exists():
        linked = [python_module, *libraries]
        with _replacing(copy / "binding.cpp") as written:
            written.write_text(kernels.binding(package / "bindings.cpp"), encoding="utf-8")
        flags = [*cxx_flags(verification), "-O0", "-DFUSEGEN_EMULATE"]
        _build_binding(
            copy / "binding.cpp", support, linked, copy / "_C.so", cache, flags, sources_flags(sources_digest)
        )
    kernels.register()
    _write_module(copy, text, {copy.name: sources_digest})
    return _import(name, copy / "__init__.py")


def _write_module(copy: Path, text: bytes, sources: Mapping[str, str]) -> None:
    """__init__.py of a copy, listed where the copy looks for that, with the digest of its library's sources."""
    with _replacing(copy / "__init__.py") as written:
        written.write_bytes(text)
    with FileLock(copy.parent / f"{MANIFEST}.lock"):
        files = read_manifest(copy.parent) | {f"{copy.name}/__init__.py": digest(text)}
        manifest = copy.parent / MANIFEST
        former = manifest.read_bytes() if manifest.exists() else None
        with _replacing(manifest) as written:
            written.write_text(
                manifest_text(files, {**listed_sources(former), **sources}, listed_specs(former)), encoding="utf-8"
            )


def _regions(package: Path) -> list[Path]:
    """The packages of a module's regions."""
    plan = json.loads((package / "plan.json").read_text(encoding="utf-8"))
    return [package.parent / region["package"] for region in plan["regions"] if region["package"]]


def _contraction(binding: Path, support: Path, cache: Path, defines: Sequence[str]) -> list[Path]:
    """The library of the emulated contraction, if the binding calls it."""
    from fusegen.build.key import contraction_of

    return [compile_kernels(source, cache=cache, defines=defines).path for source in contraction_of([binding], support)]


def _build_binding(
    source: Path,
    support: Path,
    linked: Sequence[Path],
    output: Path,
    cache: Path,
    flags: Sequence[str],
    own_flags: Sequence[str],
) -> None:
    """The binding with its ops for the CPU key, linked with the Python module and the emulator."""
    from fusegen.build.libraries import find_libraries

    libraries = find_libraries()
    objects = ["-x", "c++", str(source), "-x", "none", *map(str, linked)]
    link = [
        "-shared",
        f"-L{libraries.torch_lib}",
        "-Wl,--no-as-needed",
        "-ltorch_cpu",
        f"-Wl,-rpath,{linked[-1].parent}",
    ]
    compiler = ["g++", *flags, f"-I{libraries.torch_include}"]
    headers = precompiled(compiler, _torch_headers(support, libraries.torch_version), cache)
    with _replacing(output) as built:
        _run([*compiler, *headers, *own_flags, *objects, *link, "-o", str(built)])


def _torch_headers(support: Path, version: str) -> str:
    """PyTorch's headers that the bindings' own include."""
    own = _read(*sorted(support.glob("torch_*.h"))).decode()
    return "\n".join([f"// {version}", *sorted(set(_TORCH_INCLUDE.findall(own)))]) + "\n"


def _module_sources(support: Path) -> tuple[Path, ...]:
    return support / MODULE_SOURCE, support / "package_info.h", support / "call.h"


def _build_module(support: Path, output: Path) -> Path:
    """The object of the Python module for all packages in the cache, in `output`; it is the same as for CUDA."""
    from fusegen.build.commands import module_compiler
    from fusegen.build.libraries import find_libraries

    sources = _module_sources(support)
    made = output / f"{sources[0].stem}.{_digest(_read(*sources))}.o"
    if not made.exists():
        output.mkdir(parents=True, exist_ok=True)
        with _replacing(made) as built:
            _run([*module_compiler(["g++"], find_libraries()), "-c", str(sources[0]), "-o", str(built)])
    return made


def _build_autograd(support: Path, output: Path) -> None:
    """The library for all packages in the cache, in `output`; it is the same as for CUDA."""
    from fusegen.build.autograd import SOURCE, autograd_command
    from fusegen.build.libraries import find_libraries

    libraries = find_libraries()
    library = output / f"{AUTOGRAD}.{libraries.torch_version}.so"
    source, copy = (support / SOURCE).read_bytes(), output / SOURCE
    current = library.exists() and copy.exists() and copy.read_bytes() == source
    output.mkdir(parents=True, exist_ok=True)
    for file in (support / SOURCE, *support.glob("*.py")):
        with _replacing(output / file.name) as written:
            written.write_bytes(file.read_bytes())
    if not current:
        with _replacing(library) as built:
            _run(autograd_command(["g++"], libraries, copy, built), output)


@contextmanager
def _replacing(output: Path) -> Iterator[Path]:
    """Where to make what becomes `output` once it is whole: other processes may use the same cache."""
    with tempfile.TemporaryDirectory(dir=output.parent) as scratch:
        built = Path(scratch) / output.name
        yield built
        os.replace(built, output)


def _read(*paths: Path) -> bytes:
    return b"".join(path.read_bytes() for path in paths)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _run(command: Sequence[str], directory: Path | None = None) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EmulationBuildError(done.stderr)


def _import(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=[str(path.parent)])
    assert spec is not None and spec.loader is not None
    with _importing:
        if name in sys.modules:  # by another thread, which compiled the package, too
            return sys.modules[name]
        if path in _imported:
            sys.modules[name] = _imported[path]
            return _imported[path]
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        _imported[path] = module
        return module
