"""How Python calls the launchers of a kernels.cu: what support/call.h and launchers.h declare, for ctypes.

    launcher = Launcher(plan, program)
    call = Call(mode.index, rows, channels, groups)
    bytes_ = launchers.workspace(launcher.symbol, call)
    status = launchers.bind(launcher.symbol, replace(call, workspace=...), launcher.arguments(tensors, constants))()

`launchers` are those of a library: compiled or emulated, `fusegen/tune/launchers.py` has both.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from fusegen.plan.launches.shapes import SCHEDULES, Shapes
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Program
from fusegen.render.programs.launchers_header import arguments, struct, symbol
from fusegen.runtime.structs import Struct

_NUMBERS = {"double": ctypes.c_double, "int64_t": ctypes.c_int64}


class _Call(ctypes.Structure):
    _fields_ = [
        ("mode", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("channels", ctypes.c_int64),
        ("groups", ctypes.c_int64),
        ("forced", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
        ("positions", ctypes.c_int64),
        ("samples", ctypes.c_int64),
        ("windows", ctypes.c_void_p),
    ]


class _Shapes(ctypes.Structure):
    """`struct Shapes` of shapes.cuh."""

    _fields_ = [(field.name, ctypes.c_int64) for field in fields(Shapes)]


def _shapes(shapes: Shapes) -> Struct:
    return Struct(_Shapes, vars(shapes) | {"schedule": SCHEDULES.index(shapes.schedule)})


@dataclass(frozen=True)
class Call:
    """`struct Call` of call.h, which says what the fields mean. workspace: an address, a buffer, or None."""

    mode: int
    rows: int
    channels: int
    groups: int = 1
    forced: Shapes | None = None
    workspace: Any = None
    stream: int | None = None
    positions: int = 0
    samples: int = 0
    windows: Any = None

    @property
    def struct(self) -> Struct:
        return Struct(_Call, vars(self) | {"forced": None if self.forced is None else _shapes(self.forced)})


class Launcher:
    """The launcher of one program: its name, and its arguments by the names that the plan has for them."""

    def __init__(self, plan: Plan, program: Program) -> None:
        self.symbol = symbol(plan.spec.name, program)
        self._arguments = arguments(program)
        fields = [(each.member, _NUMBERS.get(each.type, ctypes.c_void_p)) for each in self._arguments]
        self._layout = type(struct(program), (ctypes.Structure,), {"_fields_": fields})

    @property
    def tensors(self) -> list[str]:
        """What it reads and writes."""
        return [each.name for each in self._arguments if each.is_pointer]

    def arguments(
        self, tensors: Mapping[str, Any], constants: Mapping[str, float], rows: Mapping[str, int] | int = 0
    ) -> Struct:
        """tensors: an address, a buffer, or None for each. constants: with our own numbers. rows: how many the tensors
        have that may have fewer than others; a number is that of all of them."""
        found: dict[str, Any] = {}
        for each in self._arguments:
            if each.is_count:
                found[each.member] = rows if isinstance(rows, int) else rows[each.name]
            else:
                found[each.member] = (tensors if each.is_pointer else constants)[each.name]
        return Struct(self._layout, found)


def text_of(write: Callable[[ctypes.Array[ctypes.c_char], int], int]) -> str:
    """The text that a function writes into a buffer of a size, and of which it returns the bytes that all takes."""
    text = ctypes.create_string_buffer(1 << 12)
    if (needed := write(text, len(text))) > len(text):
        text = ctypes.create_string_buffer(needed)
        write(text, needed)
    return text.value.decode()
