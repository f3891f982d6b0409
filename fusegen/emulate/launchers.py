"""Launchers of an emulated package, each compiled when it is first called, in the dtype mode of that call.

A binding is linked with functions of the launchers' names. They ask this module for the launcher that a call's dtype
mode has, and pass everything on to it. What a process does not run is not compiled.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fusegen.emulate.compiler import compile_kernels, engine_library
from fusegen.emulate.library import EmulatedLibrary
from fusegen.render.files.includes import included_files

_DECLARATION = re.compile(r"^(const char\*|int|int64_t) (\w+)\(\s*([^)]*)\);", re.MULTILINE)
_FORWARDED = """\
extern "C" {result} {name}({parameters}) {{
  return resolved<decltype({name})>({mode}, "{name}")({arguments});
}}
"""
_SOURCE = """\
#include "{binding}"

#include <stdexcept>

extern "C" void* (*fusegen_emulate_resolve)(const char*, int64_t, const char*, char*);

namespace {{
thread_local int64_t latest_mode = 0;

template <typename Launcher>
Launcher* resolved(int64_t mode, const char* name) {{
  latest_mode = mode;
  char why[{most}] = "the kernels of this package are compiled by a process that has called emulate_package()";
  void* found = nullptr;
  if (fusegen_emulate_resolve != nullptr) found = fusegen_emulate_resolve("{key}", mode, name, why);
  if (found == nullptr) throw std::runtime_error(why);
  return reinterpret_cast<Launcher*>(found);
}}
}}  // namespace

{functions}"""

_MOST = 4096  # bytes of a message
_Message = ctypes.c_char * _MOST
_Resolve = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_char_p, ctypes.POINTER(_Message))


@dataclass
class Kernels:
    """A kernels.cu, and a library for each dtype mode that has been asked for.

    source, cache, defines: as compile_kernels() has them. directory: of all packages, below which the source is.
    checked: whether accesses are looked at, and kernels optimised, as there.
    """

    source: Path
    directory: Path
    cache: Path
    defines: Sequence[str]
    checked: bool = True
    libraries: dict[int, EmulatedLibrary] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.key = self._key()

    def address(self, mode: int, name: str) -> int | None:
        """The launcher of this name in one dtype mode; for a negative one, in any: it copies bits. Raises RuntimeError
        where the source is no longer what it was, and EmulationBuildError."""
        with self.lock:
            if mode < 0:
                mode = next(iter(self.libraries), 0)
            if mode not in self.libraries:
                if self._key() != self.key:
                    raise RuntimeError(f"{self.source} was changed after its package was imported")
                self.libraries[mode] = compile_kernels(
                    self.source,
                    cache=self.cache,
                    defines=self.defines,
                    modes=[mode],
                    checked=self.checked,
                    optimised=self.checked,
                )
            return self.libraries[mode].address(name)

    def binding(self, source: Path) -> str:
        """C++: the binding, with functions that call the launchers of launchers.h."""
        header = source.with_name("launchers.h").read_text(encoding="utf-8")
        functions = [_forwarded(*each) for each in _DECLARATION.findall(header)]
        return _SOURCE.format(binding=source.resolve(), key=self.key, most=_MOST, functions="\n".join(functions))

    def register(self) -> None:
        """Lets bindings of this process find the launchers."""
        _known.setdefault(self.key, self)
        engine = engine_library(self.cache)
        ctypes.c_void_p.in_dll(engine, "fusegen_emulate_resolve").value = ctypes.cast(_resolve, ctypes.c_void_p).value

    def _key(self) -> str:
        digest = hashlib.sha256(repr((self.defines, self.checked, _FORWARDED, _SOURCE)).encode())
        for path in included_files(self.source, self.directory):
            digest.update((self.directory / path).read_bytes() + b"\0")
        return digest.hexdigest()[:16]


_known: dict[str, Kernels] = {}


@_Resolve
def _resolve(key: bytes, mode: int, name: bytes, why: Any) -> int | None:
    """Where the launcher is. None where it cannot be compiled, and the reason in `why`; where no package of the process
    has it, `why` says so already. C++ raises that."""
    kernels = _known.get(key.decode())
    if kernels is None:
        return None
    try:
        return kernels.address(mode, name.decode())
    except BaseException as error:  # an interruption too: a callback that raises returns no defined address
        why.contents.value = (str(error) or type(error).__name__).encode()[: _MOST - 1]
        return None


def _forwarded(result: str, name: str, parameters: str) -> str:
    """A function that calls the launcher of its name. One without a call is asked what the latest call's error was."""
    arguments = ", ".join(re.findall(r"(\w+)(?:,|$)", parameters))
    mode = "call->mode" if "fusegen::Call*" in parameters else "latest_mode"
    return _FORWARDED.format(result=result, name=name, parameters=parameters, mode=mode, arguments=arguments)
