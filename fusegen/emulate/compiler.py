"""Compiles emitted sources as C++ with the emulator's engine, and caches what comes of it."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from fusegen.emulate.errors import EmulationBuildError
from fusegen.emulate.library import INCLUDE, EmulatedLibrary
from fusegen.emulate.precompiled import precompiled

_NATIVE = INCLUDE.parent / "native"
_COMPILER = "g++"
_COMMON_FLAGS = ["-std=c++17", "-fPIC"]
_ERROR_FLAGS = ["-g1"]  # functions and lines are all that errors name
# A fortified longjmp refuses to leave a fibre's stack.
_ENGINE_FLAGS = [*_COMMON_FLAGS, *_ERROR_FLAGS, "-O2", "-U_FORTIFY_SOURCE"]
_KERNEL_FLAGS = [
    *_COMMON_FLAGS,
    "-ffp-contract=off",
    "-fno-gnu-unique",  # else statics of equally named templates would be shared by all loaded libraries
    "-Wno-unknown-pragmas",
    # A variable without a value has one that no result survives, rather than what the stack held.
    "-ftrivial-auto-var-init=pattern",
]
# What a GPU answers with a fault or with a wrong address, without the sanitizer's run-time library.
_FAULT_FLAGS = [*_ERROR_FLAGS, "-fsanitize=bounds,signed-integer-overflow", "-fsanitize-undefined-trap-on-error"]
# What is inlined is compiled again wherever it is called.
_PLAIN_FLAGS = ["-O0", "-D__forceinline__=inline"]
_FAST_FLAGS = ["-Og"]  # -O1 takes a fifth more to compile, and saves little of that
# To step through kernels in a debugger: every line and variable is there, and each statement in its order. What is
# inlined would have no arguments.
_DEBUG_FLAGS = ["-g", *_PLAIN_FLAGS]
_DEBUG_VARIABLE = "FUSEGEN_DEBUG_KERNELS"
# A call of the engine before every access to memory. ThreadSanitizer's own run-time library is not linked.
_HOOK_FLAGS = ["-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0"]
_REFERENCE_FLAGS = ["-fsanitize=alignment"]
# Held while the engine is built, for which all threads would wait anyway.
_building = threading.Lock()
_QUOTED_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


def compile_kernels(
    source: Path,
    *,
    cache: Path,
    defines: Sequence[str] = (),
    modes: Iterable[int] | None = None,
    checked: bool = True,
    references: bool = False,
    optimised: bool = True,
) -> EmulatedLibrary:
    """Compiles a kernels.cu unless the cache has it. The key is the content of everything that goes in.

    modes: the dtype configurations to compile, by the index that the plan has for each; None: all of them. A launcher
    refuses the others. Each takes the compiler a few seconds.

    checked: whether every access to shared memory and to buffers is looked at before it happens. Without that, a
    mistake shows by what it does: a fault, a damaged canary, a NaN, a result that depends on the order of threads.

    references: whether the alignment of every reference is looked at, for which the compiler takes a quarter more time.
    Without that it is the alignment of vectors that are copied and, where `checked`, of what an access moves at once.

    optimised: whether the compiler optimises. Without that it takes a third less time, and kernels about twice as much:
    for a few launches of few threads. They also read what they have no use for then, so that where `checked` some are
    said to read memory that nothing has written. Where neither is asked for, nothing is looked at, for which the
    compiler takes less than half the time: results alone show a mistake.

    With the environment variable FUSEGEN_DEBUG_KERNELS the kernels are compiled for a debugger: docs/debugging.md.
    """
    source, cache = Path(source).resolve(), Path(cache).resolve()
    engine = engine_path(cache)
    defines = [*defines, *_selected(modes)]
    debug = bool(os.environ.get(_DEBUG_VARIABLE))
    flags = [*_KERNEL_FLAGS, *(_FAST_FLAGS if optimised else _PLAIN_FLAGS)]
    if checked or optimised or references:
        flags += [*_FAULT_FLAGS, *(_HOOK_FLAGS if checked else [])]
        flags += _REFERENCE_FLAGS if references or not checked else []
    flags += _DEBUG_FLAGS if debug else []
    digest = hashlib.sha256(repr((engine.name, flags, defines)).encode())
    _hash_source(source, digest, set())
    target = cache / f"{source.stem}-{digest.hexdigest()[:24]}.so"
    if not target.exists():
        options = [f"-D{define}" for define in defines]
        headers = precompiled([_COMPILER, f"-I{INCLUDE}", *flags], _headers(engine), cache)
        # $ORIGIN: the engine lies beside the library, wherever the cache is moved to.
        link = ["-shared", str(engine), "-Wl,-rpath,$ORIGIN"]
        _compile([*flags, *options, *headers, "-x", "c++", str(source)], link, target)
    return EmulatedLibrary(target)


def engine_library(cache: Path) -> ctypes.CDLL:
    """The engine that kernels and bindings of this cache are linked with, loaded."""
    return ctypes.CDLL(str(engine_path(cache)))


def _headers(engine: Path) -> str:
    """What every kernels.cu includes, or has no other name for; the engine's name has the content of the headers."""
    return f"// {engine.name}\n#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n#include <cuda_pipeline.h>\n"


def _selected(modes: Iterable[int] | None) -> list[str]:
    """The macro of kernels/entry.cuh that says which dtype configurations are compiled."""
    return [] if modes is None else [f"FUSEGEN_MODES={sum(1 << mode for mode in set(modes)):#x}u"]


def engine_path(cache: Path) -> Path:
    """The engine's library, which is built unless the cache has it."""
    digest = hashlib.sha256(repr((_compiler_version(), _ENGINE_FLAGS)).encode())
    for path in sorted([*INCLUDE.iterdir(), *_NATIVE.iterdir()]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    target = cache / f"libfusegen_emulate-{digest.hexdigest()[:24]}.so"
    cache.mkdir(parents=True, exist_ok=True)
    with _building:
        if not target.exists():
            link = ["-shared", f"-Wl,-soname,{target.name}", "-ldl", "-lpthread"]
            _compile([*_ENGINE_FLAGS, str(_NATIVE / "engine.cpp")], link, target)
    return target


def _compile(arguments: Sequence[str], link: Sequence[str], target: Path) -> None:
    """Another process may do the same at the same time: whoever ends last replaces an equal file.

    In two steps: a linker that is told of -fsanitize=thread adds its run-time library.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as directory:
        compiled, output = Path(directory) / "object.o", Path(directory) / target.name
        compile_ = [f"-I{INCLUDE}", *arguments, "-c", "-o", str(compiled)]
        for command in (compile_, [str(compiled), *link, "-o", str(output)]):
            done = subprocess.run([_COMPILER, *command], capture_output=True, text=True)
            if done.returncode:
                raise EmulationBuildError(done.stderr.strip())
        os.replace(output, target)


def _hash_source(path: Path, digest: hashlib._Hash, seen: set[Path]) -> None:
    """Adds a file and what it includes in quotes; the emulator's own headers are in the engine's key."""
    if path in seen or not path.is_file():
        return
    seen.add(path)
    text = path.read_bytes()
    digest.update(len(text).to_bytes(8, "little") + text)
    for name in _QUOTED_INCLUDE.findall(text):
        _hash_source((path.parent / os.fsdecode(name)).resolve(), digest, seen)


@functools.cache
def _compiler_version() -> str:
    try:
        return subprocess.run([_COMPILER, "--version"], capture_output=True, text=True, check=True).stdout
    except OSError as error:
        raise EmulationBuildError(f"cannot run {_COMPILER}: {error}") from None
