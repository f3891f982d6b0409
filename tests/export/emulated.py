"""Exported files that run on the CPU: their own Python and C++ around the emulated kernels.

Accesses of the kernels are not checked: those of packages are the same, and other tests check them.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from fusegen.emulate import compile_kernels
from fusegen.plan.modules.module import ModulePlan
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

    def run(self, *specs: tuple[Path, str | None], dtypes: Sequence[str] = ("float32",)) -> list[dict[str, Any]]:
        """The names of the files that specs are exported as, once each was executed in an empty dict.

        specs: with the precision of each.
        """
        plans = [standalone_plan(spec, dtypes, precision) for spec, precision in specs]
        with ThreadPoolExecutor(os.cpu_count()) as compilers:
            libraries = [*compilers.map(self._kernels, plans)]
        codes = {plan.spec.name: cpp_source(plan, {"torch_device.h": DEVICE.read_text()}) for plan in plans}
        built = self._built(codes, libraries)
        made = [self._extension(name, built) for name in codes]
        return [executed(render_standalone(p, inputs_of_spec(p)), e) for p, e in zip(plans, made, strict=True)]

    def _kernels(self, plan: ModulePlan) -> Path:
        """The library of a plan's kernels."""
        kernels = self.directory / plan.spec.name / "kernels.cu"
        kernels.parent.mkdir()
        kernels.write_text(cuda_source(plan))
        return compile_kernels(kernels, cache=self.cache, checked=False, optimised=False).path

    def _built(self, codes: Mapping[str, str], libraries: Sequence[Path]) -> Path:
        """A library with a Python module for each. One source, each code in a namespace: most of the time is taken by
        torch's headers."""
        lines = ["#include <torch/extension.h>"]
        lines += [line for code in codes.values() for line in code.splitlines() if line.startswith("#include")]
        for name, code in codes.items():
            lines += ["#undef TORCH_EXTENSION_NAME", f"#define TORCH_EXTENSION_NAME {name}"]
            lines += [f"namespace file_{name} {{", code, "}"]
        built = self.directory / f"files_{'_'.join(codes)}.so"
        source = built.with_suffix(".cpp")
        source.write_text("\n".join(lines))
        link = [
            "-shared",
            f"-L{Path(torch.__file__).parent / 'lib'}",
            "-ltorch",
            "-ltorch_cpu",
            "-ltorch_python",
            "-lc10",
        ]
        inputs = ["-x", "c++", str(source), "-x", "none", *map(str, libraries)]
        self._run(["g++", *self.flags, *inputs, *link, f"-Wl,-rpath,{self.cache}", "-o", str(built)])
        return built

    @staticmethod
    def _extension(name: str, built: Path) -> Any:
        spec = importlib.util.spec_from_file_location(name, built)
        assert spec is not None and spec.loader is not None
        extension = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(extension)
        return extension

    @staticmethod
    def _run(command: Sequence[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
