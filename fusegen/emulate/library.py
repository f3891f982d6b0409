"""Calls the launchers of emitted sources that were compiled for the emulator, and says what went wrong."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from fusegen.emulate.buffer import Buffer
from fusegen.emulate.errors import EmulationError
from fusegen.runtime.structs import Struct

INCLUDE = Path(__file__).resolve().parent / "include"

# All libraries share the engine's state, and ctypes lets other Python threads run during a call.
_lock = threading.Lock()


class _Report(ctypes.Structure):
    """As in native/fault.h."""

    _fields_ = [
        ("text", ctypes.c_char * 512),
        ("kernel_offset", ctypes.c_uint64),
        ("code_offset", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("is_global", ctypes.c_int32),
        ("has_thread", ctypes.c_int32),
        ("block", ctypes.c_uint32 * 3),
        ("thread", ctypes.c_uint32 * 3),
    ]


class _Watched(ctypes.Structure):
    """As in native/regions.h."""

    _fields_ = [
        ("open", ctypes.c_uint64),
        ("close", ctypes.c_uint64),
        ("data", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("granule", ctypes.c_uint32),
        ("poisoned", ctypes.c_uint32),
    ]


class EmulatedLibrary:
    """The launchers of one kernels.cu, to be called with buffers."""

    def __init__(self, path: Path):
        self.path = path
        self._library = ctypes.CDLL(str(path))
        # Found through the library, which links the engine: this is the copy that the library uses.
        self._begin = self._library.fusegen_emulate_begin
        self._begin.argtypes, self._begin.restype = [ctypes.c_uint64], None
        self._watch = self._library.fusegen_emulate_watch
        self._watch.argtypes, self._watch.restype = [ctypes.POINTER(_Watched), ctypes.c_int64], None
        self._report = self._library.fusegen_emulate_report
        self._report.argtypes, self._report.restype = [], ctypes.POINTER(_Report)

    def call(self, name: str, *args: object, seed: int = 0) -> None:
        """Calls a launcher, which returns a cudaError_t. The seed sets the order of blocks and threads.

        The first argument is an int, the following ints are int64_t, floats are double, buffers and None are
        pointers; a ctypes value is passed as it is, an array or a struct by its address. Messages call a buffer by
        the number of its argument, in a struct by its member.
        """
        error = self._call(name, args, seed, ctypes.c_int)
        if error:
            raise EmulationError(f"{name} returned CUDA error {error}")

    def address(self, name: str) -> int | None:
        """Where a function is in memory."""
        return ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value

    def call_int64(self, name: str, *args: object) -> int:
        """Calls a function that returns an int64_t, such as the size of a workspace."""
        return self._call(name, args, 0, ctypes.c_int64)

    def _call(self, name: str, args: Sequence[object], seed: int, result: type) -> int:
        function = getattr(self._library, name)
        function.restype = result
        converted = [_convert(arg, first=i == 0) for i, arg in enumerate(args)]
        buffers = dict(_buffers(args))
        distinct = {id(buffer): buffer for buffer in buffers.values()}.values()
        watched = (_Watched * len(distinct))(*(_watched(buffer) for buffer in distinct))
        with _lock:
            self._watch(watched, len(watched))
            self._begin(seed)
            value = function(*converted)
            self._watch(None, 0)  # the buffers may go away
            report = self._report().contents
            message = self._describe(report, buffers) if report.text else None
            self._begin(seed)  # an error is this call's alone, not that of emulated packages in the process
        if message:
            raise EmulationError(f"{name}: {message}")
        for place, buffer in buffers.items():
            damage = buffer.damage()
            if damage:
                raise EmulationError(f"{name}: {place}, {buffer!r}, {damage}")
        return value

    def _describe(self, report: _Report, buffers: dict[str, Buffer]) -> str:
        kernel, _ = self._source_of(report.kernel_offset)
        text = report.text.decode()
        if report.is_global:
            for place, buffer in buffers.items():
                if buffer.covers(report.address):
                    only = " (read-only)" if buffer.readonly else ""
                    text += f", {place}, {buffer!r}{only}, {buffer.where(report.address)}"
        if report.code_offset:
            text += f" [{self._source_of(report.code_offset)[1]}]"
        place = f"block {tuple(report.block)}"
        if report.has_thread:
            place += f", thread {tuple(report.thread)}"
        return f"{kernel}, {place}: {text}"

    def _source_of(self, offset: int) -> tuple[str, str]:
        """The function and the file:line of an offset, from the debug information."""
        command = ["addr2line", "-i", "-f", "-C", "-e", str(self.path), hex(offset)]
        try:
            lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        except (OSError, subprocess.CalledProcessError):
            return f"kernel at {offset:#x}", f"{self.path.name}+{offset:#x}"
        # Innermost first; a device function of the stand-in headers interests nobody, but who called it does.
        frames = list(zip(lines[::2], lines[1::2], strict=True))
        function, line = next((frame for frame in frames if str(INCLUDE) not in frame[1]), frames[0])
        return function, os.path.basename(line).partition(" ")[0]  # drops "(discriminator 4)"


def _watched(buffer: Buffer) -> _Watched:
    open_, close = buffer.pages()
    return _Watched(open_, close, buffer.pointer, buffer.nbytes, buffer.dtype.itemsize, buffer.poison == 0xFF)


def _buffers(args: Sequence[object]) -> Iterator[tuple[str, Buffer]]:
    """The buffers that a call is given, and what messages call each."""
    for i, arg in enumerate(args):
        if isinstance(arg, Struct):
            yield from ((name, value) for name, value in arg.members.items() if isinstance(value, Buffer))
        elif isinstance(arg, Buffer):
            yield f"argument {i}", arg


def _convert(arg: object, *, first: bool) -> object:
    if arg is None:
        return ctypes.c_void_p(None)
    if isinstance(arg, Buffer):
        return ctypes.c_void_p(arg.pointer)
    if isinstance(arg, float):
        return ctypes.c_double(arg)
    if isinstance(arg, int):
        return ctypes.c_int(arg) if first else ctypes.c_int64(arg)
    if isinstance(arg, Struct):
        return ctypes.byref(arg.made())
    if isinstance(arg, ctypes._SimpleCData | ctypes.Array):
        return arg
    raise TypeError(f"cannot pass {type(arg).__name__} to a launcher")
