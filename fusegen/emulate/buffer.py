"""Memory that stands in for a GPU's: its end meets an inaccessible page, its start a canary."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusegen.emulate.errors import EmulationError

if TYPE_CHECKING:
    import torch

_ALIGNMENT = 16  # of what an allocator returns, as far as kernels rely on it
_POISON_FLOAT = 0xFF  # repeated, a NaN in every floating-point type
_POISON_INT = 0x7F
_CANARY = b"\xa5\xff"  # a NaN too, so that a stray read shows, but not the one that poison is

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Buffer:
    """A tensor's bytes in guarded memory.

    The pointer is 16-byte aligned, plus `offset_bytes`, which makes it deliberately misaligned. So at most 15
    bytes lie between the end of the data and the inaccessible page. They hold a canary, as does what remains
    of the first page before the data; `damage` says whether one was overwritten. A `readonly` buffer cannot
    be written at all.
    """

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, *, offset_bytes: int = 0):
        if not 0 <= offset_bytes < _ALIGNMENT or offset_bytes % dtype.itemsize:
            allowed = f"a multiple of {dtype.itemsize} below {_ALIGNMENT}"
            raise ValueError(f"offset_bytes must be {allowed}, not {offset_bytes}")
        self.shape = tuple(shape)
        self.dtype = dtype
        self.readonly = False
        self.poison: int | None = None  # the byte that it was filled with
        self.nbytes = dtype.itemsize
        for size in self.shape:
            self.nbytes *= size

        page = mmap.PAGESIZE
        needed = -(-(self.nbytes + offset_bytes) // _ALIGNMENT) * _ALIGNMENT
        inside = -(-max(needed, 1) // page) * page
        mapping = _libc.mmap(None, inside + 2 * page, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if mapping in (None, ctypes.c_void_p(-1).value):
            raise MemoryError(f"cannot map {inside} bytes")
        self._mapping, self._mapped = mapping, inside + 2 * page
        self._inside, self._end = mapping + page, mapping + page + inside
        if _libc.mprotect(self._inside, inside, mmap.PROT_READ | mmap.PROT_WRITE) != 0:
            raise MemoryError(f"cannot make {inside} bytes accessible")
        self.pointer = (self._end - self.nbytes - offset_bytes) // _ALIGNMENT * _ALIGNMENT + offset_bytes
        before, after = self._canaries()
        ctypes.memmove(self._inside, before, len(before))
        ctypes.memmove(self.pointer + self.nbytes, after, len(after))

    @classmethod
    def from_tensor(cls, tensor: torch.Tensor, *, offset_bytes: int = 0, readonly: bool = False) -> Buffer:
        """Copies a contiguous CPU tensor."""
        if tensor.device.type != "cpu" or not tensor.is_contiguous():
            raise ValueError("the tensor must be contiguous and on the CPU")
        buffer = cls(tensor.shape, tensor.dtype, offset_bytes=offset_bytes)
        ctypes.memmove(buffer.pointer, tensor.data_ptr(), buffer.nbytes)
        if readonly:
            buffer.readonly = True
            if _libc.mprotect(buffer._inside, buffer._end - buffer._inside, mmap.PROT_READ) != 0:
                raise MemoryError("cannot make the buffer read-only")
        return buffer

    @classmethod
    def poisoned(cls, shape: Sequence[int], dtype: torch.dtype, *, offset_bytes: int = 0) -> Buffer:
        """For results: NaN, or a large integer, wherever a kernel writes nothing."""
        buffer = cls(shape, dtype, offset_bytes=offset_bytes)
        floating = dtype.is_floating_point or dtype.is_complex
        buffer.poison = _POISON_FLOAT if floating else _POISON_INT
        ctypes.memset(buffer.pointer, buffer.poison, buffer.nbytes)
        return buffer

    def tensor(self) -> torch.Tensor:
        """Copies the contents out."""
        import torch

        result = torch.empty(self.shape, dtype=self.dtype)
        ctypes.memmove(result.data_ptr(), self.pointer, self.nbytes)
        return result

    def damage(self) -> str | None:
        """Where a canary was overwritten, in words, or None."""
        before, after = self._canaries()
        for start, canary in ((self._inside, before), (self.pointer + self.nbytes, after)):
            found = ctypes.string_at(start, len(canary))
            if found != canary:
                first = next(i for i, (a, b) in enumerate(zip(found, canary, strict=True)) if a != b)
                return f"was written {self.where(start + first)}"
        return None

    def check(self) -> None:
        """Raises if a canary was overwritten."""
        damage = self.damage()
        if damage:
            raise EmulationError(f"{self!r} {damage}")

    def pages(self) -> tuple[int, int]:
        """The first address of the accessible pages that hold the data, and the one behind the last."""
        return self._inside, self._end

    def covers(self, address: int) -> bool:
        """Whether the address is in this buffer or in the pages that guard it."""
        return self._mapping <= address < self._mapping + self._mapped

    def where(self, address: int) -> str:
        """An address in words, relative to the data."""
        if address < self.pointer:
            return f"{self.pointer - address} bytes before its start"
        if address >= self.pointer + self.nbytes:
            return f"{address - self.pointer - self.nbytes} bytes past its end"
        return f"at element {(address - self.pointer) // self.dtype.itemsize}"

    def _canaries(self) -> tuple[bytes, bytes]:
        # The phase counts from the page's boundary, which is even.
        before, after = self.pointer - self._inside, self._end - self.pointer - self.nbytes
        return (_CANARY * (before // 2 + 1))[:before], (_CANARY * 9)[after % 2 :][:after]

    def __repr__(self) -> str:
        return f"Buffer({str(self.dtype).removeprefix('torch.')}, {list(self.shape)})"

    def __del__(self) -> None:
        if getattr(self, "_mapping", None):
            _libc.munmap(self._mapping, self._mapped)
