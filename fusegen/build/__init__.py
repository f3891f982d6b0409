"""Compiles a generated package into its `_C.so`: finds the tools, keys the result, compiles."""

from __future__ import annotations

from fusegen.build.builder import BuildResult, build_extension
from fusegen.build.errors import BuildError
from fusegen.build.toolchain import Toolchain, find_toolchain

__all__ = ["BuildError", "BuildResult", "Toolchain", "build_extension", "find_toolchain"]
