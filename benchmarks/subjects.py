"""The pairs that are checked and timed: a generated module and its original, holding the same state."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from fusegen.verify.subjects.subject import spread_out


def _originals() -> ModuleType:
    # By path: `tests` is no package of this project's, and another may be installed under that name.
    path = Path(__file__).parent.parent / "tests" / "chains" / "originals.py"
    spec = importlib.util.spec_from_file_location("fusegen_originals", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_ORIGINALS = _originals()
CHAINS, SEEDS = _ORIGINALS.CHAINS, _ORIGINALS.SEEDS


@dataclass(frozen=True)
class Subject:
    """One chain with the class that is checked against it."""

    id: str
    stand_in: bool = False

    @property
    def chain(self):
        """The chain's entry among the originals."""
        return CHAINS[self.id]

    def fused_class(self) -> type[nn.Module]:
        """The generated class, or the original in a self-test."""
        if self.stand_in:
            return self.chain.module
        import fusegen

        return fusegen.load(self.chain.spec)

    def pair(
        self, size: tuple[int, ...], dtype: torch.dtype, device: str, seed: int
    ) -> tuple[nn.Module, nn.Module, Tensor]:
        """Fused and original with the same random state, and an input that wants its gradient."""
        rows, width, out, groups = size
        torch.manual_seed(seed)
        arguments = self.chain.arguments(width, out, groups)
        with torch.device(device):
            original = self.chain.module(*arguments)
            fused = self.fused_class()(*arguments)
            x = torch.randn(rows, width, dtype=dtype)
        spread_out(original)
        original, fused = original.to(dtype), fused.to(dtype)
        fused.load_state_dict(original.state_dict())
        return fused, original, x.requires_grad_()


def subjects(ids: Iterable[str], *, stand_in: bool = False) -> dict[str, Subject]:
    """By chain id; with `stand_in` the original takes the generated module's place."""
    return {name: Subject(name, stand_in) for name in ids}
