"""The chains behind a convolution as modules on the emulator, which several files of tests share."""

from __future__ import annotations

import importlib
import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fusegen.emulate.package import emulate_package
from fusegen.plan.sizes.positions import result_positions
from fusegen.verify.subjects.subject import spread_out
from tests.chains.convolutions import EXPRESSIBLE
from tests.emulate.building import write

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
# Batches and how many positions there are in each dimension beside the typical ones.
SIZES = {"typical": (2, 0), "a batch of one": (1, 2), "one position": (3, None)}
# Without AVX-512 oneDNN has no convolutions in 16 bits. PyTorch's own ones for three dimensions of positions make
# contiguous results, whatever format the operands have; cuDNN's keep the format.
KEEPS_FORMAT_IN_16_BITS = torch.ops.mkldnn._is_mkldnn_bf16_supported()
NARROW = [name for name, chain in EXPRESSIBLE.items() if "bfloat16" in chain.dtypes]


@pytest.fixture(scope="module")
def packages(tmp_path_factory, emulation_cache):
    """The plan and the class of a chain, which is compiled when it is asked for first."""
    root, known = tmp_path_factory.mktemp("convolutions"), {}

    def package(name):
        if name not in known:
            plan = write(f"conv_{name}", EXPRESSIBLE[name].spec(f"conv_{name}"), root)
            module = emulate_package(root / plan.spec.name, cache=emulation_cache, checked=False)
            known[name] = plan, getattr(module, plan.spec.class_name)
        return known[name]

    return package


def pair(packages, name, dtype=torch.float32):
    """Generated and original module with the same random state."""
    chain = EXPRESSIBLE[name]
    _, cls = packages(name)
    torch.manual_seed(7)
    original, fused = chain.original(*chain.constructed), cls(*chain.constructed)
    spread_out(original)
    fused.load_state_dict(original.state_dict())
    fused.fusegen_strict = True
    return fused.to(dtype), original.to(dtype)


def drawn(packages, name, size="typical", dtype=torch.float32, last=False):
    """Inputs of a chain."""
    chain, (plan, _) = EXPRESSIBLE[name], packages(name)
    batch, more = SIZES[size]
    symbols = {key: each.typical for key, each in plan.spec.arguments.items() if each.type == "int"}
    positions = tuple(n + (more or 0) for n in chain.typical[0])
    if more is None:
        positions = next(
            (n,) * chain.spatial
            for n in range(1, 9)
            if all(each > 0 for each in result_positions(plan, (n,) * chain.spatial, symbols))
        )
    shapes = [(batch, chain.channels[0], *positions)]
    if chain.further:
        shapes.append((batch, chain.channels[-1], *result_positions(plan, positions, symbols)))
    torch.manual_seed(8)
    tensors = [torch.randn(shape, dtype=dtype) for shape in shapes]
    if last:
        tensors = [each.contiguous(memory_format=FORMATS[each.dim()]) for each in tensors]
    return [each.requires_grad_() for each in tensors]


def failures(comparisons):
    return [item for item in comparisons if not item.ok]


class Calls(TorchDispatchMode):
    """Notes the shapes of tensors that are copied, and of those that fusegen's ops take and return."""

    def __init__(self) -> None:
        super().__init__()
        self.copies, self.ours = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten.clone.default, torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default):
            self.copies.append(args[0].shape)
        if func.namespace == "fusegen":
            tensors = [*args, *(made if isinstance(made, tuple | list) else [made])]
            self.ours.append([tuple(each.shape) for each in tensors if isinstance(each, torch.Tensor)])
        return made


def formats_of(batch, channels, positions):
    """Tensors of this shape with all kinds of strides, each with what they are."""
    height, width = positions
    yield "contiguous", torch.randn(batch, channels, height, width)
    yield "channels_last", torch.randn(batch, height, width, channels).movedim(-1, 1)
    yield "some channels", torch.randn(batch, height, width, channels + 3)[..., :channels].movedim(-1, 1)
    yield "a part in channels_last", torch.randn(batch, height + 2, width, channels).movedim(-1, 1)[:, :, 1:-1]
    yield "a part of contiguous ones", torch.randn(batch, channels + 1, height, width + 2)[:, 1:, :, 1:-1]
    yield "positions exchanged", torch.randn(batch, channels, width, height).transpose(2, 3)
    yield "positions exchanged in channels_last", torch.randn(batch, width, height, channels).permute(0, 3, 2, 1)
    yield "one of a batch, expanded", torch.randn(1, channels, height, width).expand(batch, -1, -1, -1)
    yield "one channel, expanded", torch.randn(batch, 1, height, width).expand(-1, channels, -1, -1)


def part_of_support(cls, name):
    """A file of support/ of a package."""
    support = sys.modules[cls.__module__]._support
    return importlib.import_module(f"{support.__name__}.{name}")
