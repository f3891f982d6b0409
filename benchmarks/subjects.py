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

from fusegen.verify.policy import Comparison


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
CHAINS, SEEDS, FURTHER = _ORIGINALS.CHAINS, _ORIGINALS.SEEDS, _ORIGINALS.FURTHER


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
        _spread_out(original)
        original, fused = original.to(dtype), fused.to(dtype)
        fused.load_state_dict(original.state_dict())
        return fused, original, x.requires_grad_()

    def same_initial_values(self, size: tuple[int, ...], device: str) -> Comparison:
        """Whether both constructors draw the same values from the same seed."""
        states = []
        for module in (self.chain.module, self.fused_class()):
            torch.manual_seed(3)
            with torch.device(device):
                states.append(module(*self.chain.arguments(*size[1:])).state_dict())
        a, b = states
        wrong = [k for k in a | b if k not in a or k not in b or not torch.equal(a[k], b[k])]
        if not wrong and list(a) != list(b):
            wrong = ["order of the keys"]
        return Comparison.statement("same initial values", not wrong, ", ".join(wrong))


def subjects(ids: Iterable[str], *, stand_in: bool = False) -> dict[str, Subject]:
    """By chain id; with `stand_in` the original takes the generated module's place."""
    return {name: Subject(name, stand_in) for name in ids}


@torch.no_grad()
def _spread_out(module: nn.Module) -> None:
    """Away from ones and zeros, at which a forgotten weight, bias or running statistic would not show."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.GroupNorm):
            part.weight.add_(torch.randn_like(part.weight), alpha=0.3)
            part.bias.add_(torch.randn_like(part.bias), alpha=0.3)
        if isinstance(part, nn.BatchNorm1d):
            part.running_mean.normal_(0.0, 0.2)
            part.running_var.uniform_(0.3, 1.5)
            part.num_batches_tracked.add_(5)
