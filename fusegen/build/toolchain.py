"""Finds the compilers, without starting any of them.

nvcc is looked for in this order:

1. `FUSEGEN_NVCC`, a file. It is meant for fusegen alone, so a wrong value is an error, never skipped.
2. `CUDA_HOME`, then `CUDA_PATH`. Set by hand or by an environment module. Images with only the CUDA run time
   set them too, so one without bin/nvcc is passed over (and named if nothing is found).
3. The pip wheels of `fusegen[nvcc]`. Before PATH, because somebody asked for them by name for this
   environment: they are the remedy when the nvcc on PATH is too old, and what a constraints file pins.
4. PATH: whatever the machine has.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fusegen.build.errors import BuildError, listing

NVCC_REMEDY = "run: pip install 'fusegen[nvcc]', or set CUDA_HOME to a CUDA toolkit"
CXX_REMEDY = "install g++ (on Debian: apt-get install g++), or set CXX"

# What nvcc starts, relative to its toolkit. A wheel installed without its companions has nvcc and not these.
_COMPANIONS = ("bin/ptxas", "nvvm/bin/cicc")
# A wrapper script is a line or two; an nvcc binary is megabytes.
_WRAPPER_BYTES = 16384


@dataclass(frozen=True)
class Nvcc:
    """An nvcc: the file to start, where its toolkit is, and how it was found."""

    path: Path
    root: Path
    origin: str
    files: tuple[Path, ...] = field(default=(), repr=False)

    def library_flags(self) -> list[str]:
        """Where libcudart_static.a is, for the linker: nvcc from wheels does not look beside itself. None if the linker
        has to know (distribution packages).
        """
        candidates = [self.root / "lib64", self.root / "lib", *sorted(self.root.glob("targets/*/lib"))]
        return [f"-L{path}" for path in candidates if (path / "libcudart_static.a").is_file()][:1]


@dataclass(frozen=True)
class Toolchain:
    """The compilers of one build. launcher, options: what CXX has in front of the compiler (`ccache g++`) and behind
    it."""

    nvcc: Nvcc
    cxx: Path
    host_option: bool = False  # CXX was set, so nvcc is told to use it too
    launcher: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def cxx_command(self) -> list[str]:
        """The C++ compiler as it is started."""
        return [*self.launcher, os.fspath(self.cxx), *self.options]

    def nvcc_command(self) -> list[str]:
        """The CUDA compiler as it is started, with the host's that it is to use."""
        host = ["-ccbin", os.fspath(self.cxx)] if self.host_option else []
        return [os.fspath(self.nvcc.path), *host, *(word for each in self.options for word in ("-Xcompiler", each))]

    def identity(self) -> dict[str, str]:
        """What tells one compiler from another, read from the file system alone."""
        return {
            "nvcc": _identity(self.nvcc.files),
            "cxx": " ".join(
                [_identity((self.cxx.resolve(),)), *self.options, *(["for nvcc too"] if self.host_option else [])]
            ),
        }


def find_toolchain(environment: Mapping[str, str] | None = None) -> Toolchain:
    """The compilers to use, or a BuildError that names the remedy."""
    environment = os.environ if environment is None else environment
    launcher, cxx, options = find_cxx(environment)
    return Toolchain(find_nvcc(environment), cxx, bool(environment.get("CXX")), launcher, options)


def find_nvcc(environment: Mapping[str, str]) -> Nvcc:
    """The first usable nvcc in the order that this module's docstring gives."""
    if explicit := environment.get("FUSEGEN_NVCC"):
        if not _executable(Path(explicit)):
            raise BuildError(f"FUSEGEN_NVCC is {explicit!r}, which is not an executable file")
        return _nvcc(Path(explicit), "FUSEGEN_NVCC")
    tried: list[str] = []
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := environment.get(variable):
            path = Path(home) / "bin" / "nvcc"
            if _executable(path):
                return _nvcc(path, variable)
            tried.append(f"{variable}: no executable {path}")
        else:
            tried.append(f"{variable}: not set")
    wheels = _wheel_candidates()
    for path in wheels:
        root = path.parent.parent
        missing = [name for name in _COMPANIONS if not (root / name).is_file()]
        if not missing:
            return _nvcc(path, "pip wheels")
        tried.append(f"pip wheels: {root} lacks {', '.join(missing)}")
    if found := shutil.which("nvcc", path=environment.get("PATH", "")):
        return _nvcc(Path(found), "PATH")
    if not wheels:
        tried.append("pip wheels: no nvidia/cu*/bin/nvcc in this environment")
    tried.append("PATH: no nvcc")
    raise BuildError(f"no CUDA compiler was found\n{listing(tried)}\n{NVCC_REMEDY}")


def find_cxx(environment: Mapping[str, str]) -> tuple[tuple[str, ...], Path, tuple[str, ...]]:
    """The host compiler, with what CXX has in front of it and behind it: CXX is a command, as for torch."""
    search = environment.get("PATH", "")
    if explicit := environment.get("CXX"):
        return _cxx_of(explicit, search)
    for name in ("g++", "c++"):
        if found := shutil.which(name, path=search):
            return (), Path(found), ()
    raise BuildError("no C++ compiler was found: neither g++ nor c++ is on PATH", hint=CXX_REMEDY)


def _cxx_of(explicit: str, search: str) -> tuple[tuple[str, ...], Path, tuple[str, ...]]:
    """As find_cxx. Programs come first, of which the last is the compiler, then options."""
    if found := shutil.which(explicit, path=search):  # a path with a space in it
        return (), Path(found), ()
    try:
        words = shlex.split(explicit)
    except ValueError as error:
        raise BuildError(f"CXX is {explicit!r}, which is no command: {error}", hint=CXX_REMEDY) from None
    count = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    programs = []
    for word in words[:count] or [explicit]:
        found = shutil.which(word, path=search)
        if found is None:
            which = "which" if word == explicit else f"of which {word!r}"
            raise BuildError(f"CXX is {explicit!r}, {which} is not an executable", hint=CXX_REMEDY)
        programs.append(found)
    return tuple(programs[:-1]), Path(programs[-1]), tuple(words[count:])


def find_ninja(environment: Mapping[str, str] | None = None) -> Path:
    """ninja: the pip package's binary, which fusegen depends on, else the one on PATH."""
    environment = os.environ if environment is None else environment
    if importlib.util.find_spec("ninja") is not None:
        import ninja

        packaged = Path(getattr(ninja, "BIN_DIR", "") or "/") / "ninja"
        if _executable(packaged):
            return packaged
    if found := shutil.which("ninja", path=environment.get("PATH", "")):
        return Path(found)
    raise BuildError("ninja was not found", hint="run: pip install ninja")


def _nvcc(path: Path, origin: str) -> Nvcc:
    """Follows links and wrapper scripts to the toolkit, and collects the files that make up the identity."""
    path = path.absolute()
    real = path.resolve()
    files = [real]
    # Distributions put a script on PATH that starts the real one elsewhere: replacing the toolkit behind it
    # must change the key, and the libraries are beside the real one.
    for target in _wrapped(real):
        files.append(target.resolve())
    root = files[-1].parent.parent
    files += [root / name for name in ("version.json", *_COMPANIONS) if (root / name).is_file()]
    return Nvcc(path=path, root=root, origin=origin, files=tuple(files))


def _wrapped(path: Path) -> list[Path]:
    if path.stat().st_size > _WRAPPER_BYTES:
        return []
    content = path.read_bytes()
    if not content.startswith(b"#!"):
        return []
    words = re.findall(r"/[\w.+/-]+", content.decode("utf-8", "replace"))
    named = [Path(word) for word in words if word.endswith("/nvcc")]
    return [found for found in named if found != path and _executable(found)]


def _wheel_candidates() -> list[Path]:
    """nvcc of the wheels, newest CUDA first."""
    found = [path for root in _wheel_roots() for path in root.glob("cu[0-9]*/bin/nvcc") if _executable(path)]
    return sorted(found, key=lambda path: -int(re.sub(r"\D", "", path.parent.parent.name)))


def _wheel_roots() -> list[Path]:
    """Where `nvidia` wheels are installed; it is a namespace package that many of them share."""
    spec = importlib.util.find_spec("nvidia")
    return [Path(location) for location in spec.submodule_search_locations or ()] if spec else []


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _identity(files: tuple[Path, ...]) -> str:
    """Path, size and time of each file: cheap, and different after every upgrade."""
    digest = hashlib.sha256()
    for path in files:
        status = path.stat()
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
