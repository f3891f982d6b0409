"""What a compiled library takes from others: whether any torch, Python and C library of the right age can give it.

A library is portable if it takes nothing but

- functions of torch's stable ABI, C functions that the oldest torch has and no later one takes away; others of it
  as weak symbols alone, without which the library loads,
- versioned functions of the C and C++ run time, which manylinux policies judge,
- what a linker leaves undefined for tools that are not there,

and needs no library but theirs to be loaded. Functions of CPython or of C++ inside torch are none of these. The CUDA
run time is part of the library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fusegen.build.libraries import OLDEST_TORCH
from fusegen.wheel.errors import WheelError
from fusegen.wheel.stable_abi import FUNCTIONS

_OF_ANY_TORCH = re.compile(r"(aoti_torch|torch)_\w+")
_TORCH = "libtorch_cpu.so"
# By the libraries' own names. What they export has versions.
_RUN_TIME = re.compile(r"(libc|libm|libstdc\+\+|libgcc_s|libdl|librt|libpthread|ld-linux-[\w-]+)\.so\.\d+")
_OPTIONAL = frozenset({"__cxa_finalize", "__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable"})
_SHOWN = 5


def require_portable(libraries: Sequence[Path]) -> None:
    """Raises WheelError, which names what it takes, if one of the libraries is not portable."""
    for library in libraries:
        if foreign := foreign_symbols(library):
            oldest = ".".join(map(str, OLDEST_TORCH))
            more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
            raise WheelError(
                f"{library.parent.name}/{library.name} takes what is in neither the stable ABI of torch {oldest} nor "
                f"the C and C++ run time, so it would not load everywhere: {', '.join(foreign[:_SHOWN])}{more}"
            )


def foreign_symbols(library: Path) -> list[str]:
    """What makes a library not portable, sorted: other libraries that it needs, and undefined symbols."""
    from elftools.elf.elffile import ELFFile  # not everybody who builds has it

    with library.open("rb") as file:
        elf = ELFFile(file)
        others = [name for name in _needed(elf) if name != _TORCH and _RUN_TIME.fullmatch(name) is None]
        return sorted([*others, *(symbol[0] for symbol in _undefined(elf) if not _is_portable(*symbol))])


def _needed(elf: Any) -> Iterator[str]:
    """The libraries that are loaded with it."""
    for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED"):
        yield tag.needed


def _undefined(elf: Any) -> Iterator[tuple[str, str | None, bool]]:
    """Each undefined dynamic symbol, the library that its version names, if it has one, and whether it is weak."""
    needed = elf.get_section_by_name(".gnu.version_r")
    numbers = elf.get_section_by_name(".gnu.version")
    sources: dict[int, str] = {}
    for need, versions in needed.iter_versions() if needed is not None else ():
        sources.update({version["vna_other"]: need.name for version in versions})
    for index, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
        if symbol.name and symbol["st_shndx"] == "SHN_UNDEF":
            number = numbers.get_symbol(index)["ndx"] if numbers is not None else 0
            yield symbol.name, sources.get(number), symbol["st_info"]["bind"] == "STB_WEAK"


def _is_portable(name: str, source: str | None, is_weak: bool) -> bool:
    if source is not None:
        return _RUN_TIME.fullmatch(source) is not None
    if is_weak and _OF_ANY_TORCH.fullmatch(name):
        return True
    return name in _OPTIONAL or name in FUNCTIONS
