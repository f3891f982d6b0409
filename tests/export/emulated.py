"""Exported files that run on the CPU: their own Python and C++ around the emulated kernels.

Accesses of the kernels are not checked: those of packages are the same, and other tests check them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fusegen.emulate import compile_kernels
from fusegen.standalone.inputs import inputs_of_spec
from fusegen.standalone.module import render_standalone
from fusegen.standalone.plan import standalone_plan
from fusegen.standalone.sources import cpp_source, cuda_source
from tests.export.stand_in import executed

# What the ops take of torch/extension.h, which as a whole takes a compiler twice as long.
EXTENSION = """\
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
"""
DEVICE = Path(__file__).with_name("cpu_device.h")
_STANDARD = "-std=c++20"  # torch's own headers, from 2.13 on, are C++20


class Emulated:
    """Makes them, in one directory. cache: where emulated kernels are compiled to."""

    def __init__(self, directory: Path, cache: Path) -> None:
        self.directory, self.cache = directory, cache
        include = Path(torch.__file__).parent / "include"
        self.flags = [_STANDARD, "-O0", "-fPIC", "-w", "-DAT_PER_OPERATOR_HEADERS", f"-I{directory}"]
        for each in (include, include / "torch/csrc/api/include", Path(sysconfig.get_paths()["include"])):
            self.flags.append(f"-I{each}")
        (directory / "torch").mkdir()
        (directory / "torch" / "extension.h").write_text(EXTENSION)

    def run(self, spec: Path, precision: str | None = None) -> dict[str, Any]:
        """The names of the file that the spec is exported as, in float32, once it was executed in an empty dict."""
        plan = standalone_plan(spec, ["float32"], precision)
        kernels = self.directory / spec.stem / "kernels.cu"
        kernels.parent.mkdir()
        kernels.write_text(cuda_source(plan))
        library = compile_kernels(kernels, cache=self.cache, checked=False).path
        code = cpp_source(plan, {"torch_device.h": DEVICE.read_text()})
        made = self._extension(spec.stem, code, library)
        return executed(render_standalone(plan, inputs_of_spec(plan)), made)

    def _extension(self, name: str, code: str, library: Path) -> Any:
        module = f"{name}_{hashlib.sha256(code.encode()).hexdigest()[:8]}"
        source, made = self.directory / f"{module}.cpp", self.directory / f"{module}.so"
        source.write_text(f"#include <torch/extension.h>\n{code}")
        torch_lib = Path(torch.__file__).parent / "lib"
        link = ["-shared", f"-L{torch_lib}", "-ltorch", "-ltorch_cpu", "-ltorch_python", "-lc10"]
        define = [f"-DTORCH_EXTENSION_NAME={module}"]
        inputs = ["-x", "c++", str(source), "-x", "none", str(library)]
        self._run(["g++", *self.flags, *define, *inputs, *link, f"-Wl,-rpath,{library.parent}", "-o", str(made)])
        spec = importlib.util.spec_from_file_location(module, made)
        assert spec is not None and spec.loader is not None
        extension = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(extension)
        return extension

    @staticmethod
    def _run(command: Sequence[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
