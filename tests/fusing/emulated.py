"""Fused models whose kernels are emulated."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import Tensor, nn

from fusegen.emulate.package import emulate_package
from fusegen.fusing import fuse as fusing
from fusegen.fusing.report import Report


def fuse_emulated(model: nn.Module, x: Tensor, directory: Path, cache: Path) -> Report:
    """fusegen.fuse() of the model, in float32. A package is emulated once, however many modules are replaced by it."""
    loaded: dict[str, type] = {}

    def load(name: str, output: Path) -> type:
        if name not in loaded:
            package = emulate_package(output / name, cache=cache, modes=[0])
            loaded[name] = getattr(package, package.__all__[0])
        return loaded[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fusing, "load", load)
        return fusing.fuse(model, x, directory=directory, compile=False)
