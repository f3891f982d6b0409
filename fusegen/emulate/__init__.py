"""Runs emitted CUDA sources on the CPU, for small shapes and for correctness only."""

from fusegen.emulate.buffer import Buffer
from fusegen.emulate.compiler import compile_kernels
from fusegen.emulate.errors import EmulationBuildError, EmulationError
from fusegen.emulate.library import EmulatedLibrary

__all__ = ["Buffer", "EmulatedLibrary", "EmulationBuildError", "EmulationError", "compile_kernels"]
