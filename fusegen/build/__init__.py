"""Compiles generated packages into their `_C.so`: finds the tools, keys the result, compiles."""

from __future__ import annotations

from fusegen.build.builder import BuildResult, Request, build_extension, build_extensions
from fusegen.build.errors import BuildError
from fusegen.build.toolchain import Toolchain, find_toolchain

__all__ = [
    "BuildError",
    "BuildResult",
    "Request",
    "Toolchain",
    "build_extension",
    "build_extensions",
    "find_toolchain",
]
