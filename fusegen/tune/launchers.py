"""The launchers of a package's kernels.cu as functions, compiled or emulated.

`_C.so` hides its launchers, so that two packages do not see each other's; `compile_launchers` makes libraries that do
not.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from fusegen.build.errors import BuildError
from fusegen.build.toolchain import find_toolchain
from fusegen.emulate import EmulatedLibrary, EmulationError
from fusegen.render.files.includes import included_files
from fusegen.runtime.launchers import Call, text_of
from fusegen.runtime.structs import Struct

# cudaErrorInvalidConfiguration: what a launcher answers where the forced schedule does not fit.
DOES_NOT_FIT = 9
_FLAGS = (
    *("-O3", "-std=c++17", "--expt-relaxed-constexpr", "-shared", "--threads=0", "--split-compile=0"),
    *("-Xcompiler", "-fPIC"),
)


class Launchers(Protocol):
    """The functions of one kernels.cu, by their names; `fusegen/runtime/launchers.py` makes what they take."""

    def workspace(self, name: str, call: Call) -> int:
        """Bytes of workspace that the launcher `name` needs."""

    def bind(self, name: str, call: Call, arguments: Struct) -> Callable[[], int]:
        """A call of the launcher `name`, which returns a cudaError_t."""

    def explain(self, name: str, call: Call) -> str:
        """What the launcher `name` would do, as lines of JSON: see templates/support/explain.cuh."""


class CompiledLaunchers:
    """Launchers of a library by `compile_launchers`."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(os.fspath(path))

    def workspace(self, name: str, call: Call) -> int:
        function = self._library[f"{name}_workspace"]
        function.restype = ctypes.c_int64
        return function(ctypes.byref(call.struct.made()))

    def bind(self, name: str, call: Call, arguments: Struct) -> Callable[[], int]:
        function = self._library[name]
        given = [ctypes.byref(struct.made()) for struct in (call.struct, arguments)]
        return lambda: function(*given)

    def explain(self, name: str, call: Call) -> str:
        function = self._library[f"{name}_explain"]
        function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64], ctypes.c_int64
        made = call.struct.made()
        return text_of(lambda text, size: function(ctypes.addressof(made), text, size))


def compile_launchers(names: Sequence[str], generated: Path, cache: Path, target: str) -> dict[str, CompiledLaunchers]:
    """The kernels of several packages, compiled at the same time unless `cache` has them. target: such as sm_90.

    Raises BuildError.
    """
    toolchain = find_toolchain()
    compiler = [*toolchain.nvcc_command(), *_FLAGS]
    gencode = f"-gencode=arch={target.replace('sm', 'compute')},code={target}"

    def library(name: str) -> Path:
        source = generated / name / "kernels.cu"
        texts = b"".join((generated / path).read_bytes() for path in included_files(source, generated))
        key = hashlib.sha256(repr((compiler, gencode)).encode() + texts)
        found = cache / f"{name}-{key.hexdigest()[:16]}.so"
        if not found.exists():
            part = found.with_suffix(f".{os.getpid()}")
            command = [*compiler, gencode, *toolchain.nvcc.library_flags(), "-o", os.fspath(part), os.fspath(source)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise BuildError(f"nvcc failed on {source}", command=shlex.join(command), output=done.stderr)
            part.replace(found)
        return found

    cache.mkdir(parents=True, exist_ok=True)
    print(f"compiling {', '.join(names)} for {target}", file=sys.stderr, flush=True)
    with ThreadPoolExecutor() as pool:
        return dict(zip(names, map(CompiledLaunchers, pool.map(library, names)), strict=True))


class EmulatedLaunchers:
    """Launchers that the emulator runs on tensors of the CPU."""

    def __init__(self, library: EmulatedLibrary) -> None:
        self._library = library

    def workspace(self, name: str, call: Call) -> int:
        return self._library.call_int64(f"{name}_workspace", call.struct)

    def explain(self, name: str, call: Call) -> str:
        explain = f"{name}_explain"
        return text_of(lambda text, size: self._library.call_int64(explain, call.struct, text, size))

    def bind(self, name: str, call: Call, arguments: Struct) -> Callable[[], int]:
        def run() -> int:
            try:
                self._library.call(name, call.struct, arguments)
            except EmulationError as error:
                if str(error).endswith(f"CUDA error {DOES_NOT_FIT}"):
                    return DOES_NOT_FIT
                raise
            return 0

        return run
