"""Runs emitted CUDA sources on the CPU, for small shapes and for correctness only."""

from .buffer import Buffer
from .errors import EmulationBuildError, EmulationError
from .library import EmulatedLibrary, compile_kernels

__all__ = ["Buffer", "EmulatedLibrary", "EmulationBuildError", "EmulationError", "compile_kernels"]
