"""Chains of images that begin with an input, as generated classes and beside torch.nn's own layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fusegen.emulate.package import emulate_package
from fusegen.verify.checks import behaviour, formats, memory, operators
from fusegen.verify.checks.compared import compare_module
from fusegen.verify.runs.run import mark_images
from fusegen.verify.subjects.subject import spread_out
from tests.emulate.building import write

NAMES = ("d", "h", "w")
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
SIZES = {
    "odd": (3, 24, (5, 7, 3)),
    "one channel": (4, 1, (3, 5, 2)),
    "one position": (5, 24, (1, 1, 1)),
    "a batch of one": (1, 40, (3, 1, 5)),
    "whole vectors": (2, 32, (4, 4, 4)),
    "large planes": (2, 16, (24, 24, 2)),
}


class Original(nn.Module):
    def __init__(self, chain: Chain, channels: int) -> None:
        super().__init__()
        for name, layer in chain.layers(channels).items():
            setattr(self, name, layer)
        self.tail = chain.tail

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.tail(self, *inputs)


@dataclass(frozen=True)
class Chain:
    """spatial: dimensions of positions. inputs: of the spec, besides x. sizes: of the inputs, for a batch, channels and
    positions. tail: the original's forward. has_contiguous_layout: whether kernels read and write contiguous images
    themselves. keeps_format: whether PyTorch's result has the strides of x: a softmax's is contiguous."""

    spatial: int
    steps: tuple[str, ...]
    layers: Callable[[int], dict[str, nn.Module]]
    tail: Callable[..., Tensor]
    inputs: tuple[str, ...] = ()
    parts: int = 1
    dtypes: str = "float32"
    has_contiguous_layout: bool = True
    keeps_format: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        return NAMES[-self.spatial :]

    def spec(self, name: str) -> str:
        sizes = zip(("n", "c", *self.names), (6, 24, 7, 5, 3), strict=False)
        dims = ", ".join(f"{each}: {size}" for each, size in sizes)
        form = ", ".join(self.names)
        first = f"x: [n, {'c' if self.parts == 1 else f'{self.parts} * c'}, {form}]"
        others = "".join(f", {each}" for each in self.inputs).replace("...", form)
        chain = "".join(f"  - {{op: {step}}}\n" for step in self.steps)
        return (
            f"fusegen: 1\nname: {name}\ndims: {{{dims}}}\narguments: {{c: {{type: dim}}}}\n"
            f"inputs: {{{first}{others}}}\ndtypes: [{self.dtypes}]\nchain:\n{chain}"
        )

    def drawn(self, batch: int, channels: int, positions: tuple[int, ...]) -> list[Tensor]:
        known = {"n": batch, "c": channels, "1": 1, **dict(zip(self.names, positions, strict=True))}
        torch.manual_seed(3)
        found = [torch.randn(batch, self.parts * channels, *positions)]
        for each in self.inputs:
            sizes = each.partition("[")[2].rstrip("]").replace("...", ", ".join(self.names)).split(", ")
            found.append(torch.randn([known[size] for size in sizes]))
        return found


@dataclass
class Packages:
    """The classes of chains, each of which is compiled when it is asked for first. checked: see emulate_package()."""

    chains: Mapping[str, Chain]
    root: Path
    cache: Path
    checked: bool = False
    known: dict[str, Any] = field(default_factory=dict)

    def __call__(self, name: str) -> Any:
        if name not in self.known:
            plan = write(f"images_{name}", self.chains[name].spec(f"images_{name}"), self.root)
            module = emulate_package(self.root / plan.spec.name, cache=self.cache, checked=self.checked)
            self.known[name] = getattr(module, plan.spec.class_name)
        return self.known[name]

    def pair(self, name: str, channels: int = 24, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, nn.Module]:
        """The fused module, which refuses to run PyTorch's operators, and the original, with the same parameters."""
        torch.manual_seed(7)
        original, fused = Original(self.chains[name], channels), self(name)(channels)
        spread_out(original)
        fused.load_state_dict(original.state_dict())
        fused.fusegen_strict = True
        mark_images(original, fused)
        return fused.to(dtype), original.to(dtype)

    def drawn(
        self, name: str, size: str = "odd", dtype: torch.dtype = torch.float32, last: bool = False
    ) -> list[Tensor]:
        """Inputs that want gradients. last: in channels_last."""
        chain, (batch, channels, positions) = self.chains[name], SIZES[size]
        found = [each.to(dtype) for each in chain.drawn(batch, channels, positions[: chain.spatial])]
        if last:
            found = [each.contiguous(memory_format=LAST[each.dim()]) if each.dim() in LAST else each for each in found]
        return [each.requires_grad_() for each in found]

    def calls(self, name: str, size: str) -> Iterator[tuple[nn.Module, nn.Module, list[Tensor], bool, bool]]:
        """The pair with inputs in each memory format, in training and in evaluation: whether they are in channels_last,
        and whether it trains."""
        fused, original = self.pair(name, SIZES[size][1])
        for last in (False, True) if self.chains[name].spatial > 1 else (False,):
            inputs = self.drawn(name, size, last=last)
            for train in (True, False):
                yield fused, original, inputs, last, train


class Sources(TorchDispatchMode):
    """The first argument of each of fusegen's ops that runs meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "fusegen":
            self.seen.append(args[0])
        return func(*args, **(kwargs or {}))


def failures(comparisons):
    return [item for item in comparisons if not item.ok]


BEHAVIOUR = pytest.mark.parametrize(
    "check",
    [formats.memory_formats, behaviour.strides, behaviour.frozen, behaviour.inputs_untouched, memory.footprint,
     operators.opcheck],
    ids=lambda check: check.__name__,
)  # fmt: skip


def behaves(packages: Packages, name: str, check: Callable[..., Any]) -> bool:
    """Whether a chain passes one of BEHAVIOUR. Other numbers of dimensions are PyTorch's operators' business."""
    fused, original = packages.pair(name)
    fused.fusegen_strict = False
    return not failures(check(fused, original, packages.drawn(name)))


def is_right_in_16_bits(packages: Packages, name: str, modes: tuple[bool, ...] = (True,)) -> bool:
    """Whether results and gradients are in bfloat16, and under autocast to it, in both memory formats. modes: whether
    the module is in training."""
    fused, original = packages.pair(name)
    wrong = []
    for autocast in (None, torch.bfloat16):
        dtype = torch.float32 if autocast else torch.bfloat16
        fused, original = fused.to(dtype), original.to(dtype)
        for last in (False, True):
            inputs = packages.drawn(name, dtype=dtype, last=last)
            for train in modes:
                wrong += failures(compare_module(fused, original, inputs, autocast_dtype=autocast, train=train))
    return not wrong
