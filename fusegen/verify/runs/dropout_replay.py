"""Dropout in modules that are compared: each call of a fused module draws the same seed, and what it is compared with
has the factors that kernels make of this seed in place of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.chain.model import Chain

_STATE = 17  # of torch's generator before each call


class Replayed(nn.Module):
    """In the place of a dropout: multiplies with what kernels draw.

    kernels: the generated class. factors: False for the dropout itself. sample_rows: how many indices of the first
    dimension are one sample: more than one where that is the rows of several dimensions.
    """

    def __init__(self, dropout: nn.Module, name: str, kernels: Any, seed: Tensor) -> None:
        super().__init__()
        self.dropout, self.name, self.kernels, self.seed = dropout, name, kernels, seed
        self.factors, self.sample_rows = True, 1

    def forward(self, x: Tensor) -> Tensor:
        p: Any = self.dropout.p
        if not self.factors or not self.dropout.training or p == 0:
            return self.dropout(x)
        wide = torch.promote_types(x.dtype, torch.float32)
        with torch.no_grad():
            shape = (x.shape[0] // self.sample_rows, *x.shape[1:]) if self.by_sample else x.shape
            factors = self.kernels.fusegen_factors_of(self.name, self.seed.to(x.device), p, shape).to(wide)
            factors = factors.repeat_interleave(self.sample_rows, 0) if self.by_sample else factors
        return (x.to(wide) * factors).to(x.dtype)

    @property
    def by_sample(self) -> bool:
        return self.kernels._fusegen_dropouts[self.name][1]


def replay(module: nn.Module, chain: Chain, kernels: Any, seed: Tensor) -> None:
    """Replaces the dropouts of a module in PyTorch's operators."""
    for dropout in chain.dropouts:
        setattr(module, dropout.name, Replayed(module.get_submodule(dropout.name), dropout.name, kernels, seed))


def replay_all(module: nn.Module, chains: Sequence[Chain], kernels: Any, device: str | torch.device) -> None:
    """Replaces them by what a call in `seeded` drops. chains: of the regions, each of which that drops draws a seed."""
    with _fixed_state(torch.device(device)):
        for chain in chains:
            if any(module.get_submodule(dropout.name).p != 0 for dropout in chain.dropouts):
                replay(module, chain, kernels, kernels.fusegen_seed(device))


def drawn_seed(kernels: Any, device: str | torch.device) -> Tensor:
    """What a call of a fused module draws in `seeded`."""
    with _fixed_state(torch.device(device)):
        return kernels.fusegen_seed(device)


@contextlib.contextmanager
def seeded(module: nn.Module, x: Tensor) -> Iterator[None]:
    """For a call of a module with the input x: torch's generator is in one and the same state, and afterwards as it
    was."""
    if not getattr(module, "_fusegen_dropouts", None):
        yield
        return
    with _fixed_state(x.device):
        yield


def set_state() -> None:
    """Brings torch's generators to the state that `seeded` gives them."""
    torch.manual_seed(_STATE)


def replays(module: nn.Module) -> bool:
    """Whether what a module drops depends on the place in its input alone."""
    return any(isinstance(each, Replayed) for each in module.modules())


def draws_samples(module: nn.Module) -> bool:
    """Whether some dropout of a module drops samples."""
    return any(isinstance(each, Replayed) and each.by_sample for each in module.modules())


@contextlib.contextmanager
def samples_of(module: nn.Module, rows: int) -> Iterator[None]:
    """For calls in which so many rows are one sample."""
    found = [each for each in module.modules() if isinstance(each, Replayed)]
    for each in found:
        each.sample_rows = rows
    try:
        yield
    finally:
        for each in found:
            each.sample_rows = 1


@contextlib.contextmanager
def own_draws(*modules: nn.Module) -> Iterator[None]:
    """Has replaced dropouts draw for themselves, as they do outside of comparisons."""
    found = [each for module in modules for each in module.modules() if isinstance(each, Replayed)]
    for each in found:
        each.factors = False
    try:
        yield
    finally:
        for each in found:
            each.factors = True


@contextlib.contextmanager
def _fixed_state(device: torch.device) -> Iterator[None]:
    with torch.random.fork_rng([device.index or 0] if device.type == "cuda" else []):
        set_state()
        yield
