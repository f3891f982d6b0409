"""Memory formats of gradients: what is contiguous for PyTorch's operators is so behind a module's kernels, too."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")

from torch.nn.utils import parametrizations  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.plan.load import planned_file  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from tests.emulate.convolutions import (  # noqa: E402
    FORMATS,
    KEEPS_FORMAT_IN_16_BITS,
    drawn,
    packages,
    pair,
    part_of_support,
)

__all__ = ["packages"]  # a fixture

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

# With tiles, one of them transposed, and without; with one to three dimensions of positions; with further inputs.
NAMES = ("batch_norm_scaling", "residual_hardswish", "add_batch_norm", "one_dimension", "smallest_tanh")
HEAD = """\
fusegen: 1
name: %s
dims: {batch: 4, channels: 16, height: 12, width: 10, out: 32}
arguments: {channels: {type: dim}, out: {type: dim}}
inputs: {x: [batch, channels, height, width], y: [batch, out, height, width]}
dtypes: [float32]
chain:
  - {op: conv2d, name: conv1, out_channels: out, kernel_size: 3, padding: 1}
"""
CHAINS = {
    "rows_of_images": """\
  - {op: add, input: y, save: v}
  - {op: mean, dim: 1, keepdim: true}
  - {op: mul, value: v}
""",
    # Two regions take x, one of them y.
    "regions_of_images": """\
  - {op: batch_norm, name: bn, save: main}
  - {op: conv2d, from: x, name: conv2, out_channels: out, kernel_size: 1}
  - {op: mul, input: y}
  - {op: silu}
  - {op: conv2d, name: conv3, out_channels: out, kernel_size: 3, padding: 1}
  - {op: add, value: main}
  - {op: relu}
""",
}


def strides(x) -> list[int]:
    """Of the dimensions that have several elements."""
    return [stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1]


def in_format(x, last):
    return x.contiguous(memory_format=FORMATS[x.dim()]) if last and x.dim() in FORMATS else x


def grads(module, call, inputs):
    """Of the inputs as autograd hands them on, and of the parameters as it keeps them."""
    module.zero_grad()
    found = [None] * len(inputs)
    for place, x in enumerate(inputs):
        x.register_hook(lambda grad, place=place: found.__setitem__(place, grad))
    y = call(*inputs)
    y.backward(torch.randn_like(y))
    return dict(enumerate(found)) | {name: each.grad for name, each in module.named_parameters()}


def differences(module, inputs, call=None):
    """Where strides are not eager's."""
    mine, theirs = (
        grads(module, each, [x.detach().requires_grad_() for x in inputs])
        for each in (module if call is None else call, module.fusegen_reference)
    )
    return [
        (key, strides(mine[key]), strides(theirs[key])) for key in mine if strides(mine[key]) != strides(theirs[key])
    ]


@pytest.fixture(params=["small", "large"])
def copies(request, monkeypatch):
    """A function that has a package's kernel copy the smallest tensors, too, where these stand for large ones."""

    def of(cls):
        if request.param == "large":
            module = part_of_support(cls, "memory_formats")
            for limit in ("_LEAST_BYTES", "_LEAST_IMAGE"):
                monkeypatch.setattr(module, limit, 0)

    return of


@pytest.mark.parametrize("name", NAMES)
def test_gradients_have_eagers_strides(packages, copies, name) -> None:
    fused, _ = pair(packages, name)
    copies(type(fused))
    inputs = drawn(packages, name)
    for last, weights in itertools.product((False, True), repeat=2) if inputs[0].dim() > 3 else ((False, False),):
        for parameter in fused.parameters():
            parameter.data = in_format(parameter.data.contiguous(), weights)
        assert not differences(fused, [in_format(x, last) for x in inputs]), (last, weights)


@pytest.mark.parametrize("name", ["batch_norm_scaling", "add_batch_norm"])
def test_of_inputs_with_other_strides(packages, copies, name) -> None:
    """Of a part of the channels, and of the positions."""
    fused, _ = pair(packages, name)
    copies(type(fused))
    inputs = drawn(packages, name)
    for dim in (1, 2):
        parts = [torch.cat([x, x], dim).narrow(dim, 0, x.shape[dim]) for x in inputs]
        assert not differences(fused, parts), dim


@pytest.mark.skipif(not KEEPS_FORMAT_IN_16_BITS, reason="PyTorch has no convolution in 16 bits that keeps a format")
def test_under_autocast(packages, copies) -> None:
    fused, _ = pair(packages, "residual_hardswish")
    copies(type(fused))
    with torch.autocast("cpu", torch.bfloat16):
        for last in (False, True):
            assert not differences(fused, [in_format(x, last) for x in drawn(packages, "residual_hardswish")]), last


@pytest.mark.parametrize("name", ["one_dimension", "batch_norm_scaling"])
def test_under_torch_compile(packages, name) -> None:
    fused, _ = pair(packages, name)
    compiled = torch.compile(fused, fullgraph=True, backend="aot_eager")
    assert not differences(fused, drawn(packages, name), compiled)


def test_of_a_weight_that_is_computed(packages, copies) -> None:
    """What computes it gets a gradient in its format."""
    fused, _ = pair(packages, "batch_norm_scaling")
    copies(type(fused))
    parametrizations.weight_norm(fused.conv)
    seen = []

    def noted(grad):
        seen.append(strides(grad))

    class Noted(torch.nn.Module):
        def forward(self, weight):
            weight = weight * 1
            weight.register_hook(noted)
            return weight

    torch.nn.utils.parametrize.register_parametrization(fused.conv, "weight", Noted())
    assert not differences(fused, drawn(packages, "batch_norm_scaling"))
    assert len(seen) == 2 and seen[0] == seen[1]


class Transposed(TorchDispatchMode):
    """Counts copies of tensors of one size from channels_last to contiguous memory or back."""

    def __init__(self, numel) -> None:
        super().__init__()
        self.numel, self.count = numel, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten.clone.default, torch.ops.aten._to_copy.default):
            self.count += args[0].numel() == self.numel and strides(args[0]) != strides(made)
        return made


@pytest.fixture(scope="module")
def chains(tmp_path_factory, emulation_cache):
    """Modules of CHAINS."""
    root, found = tmp_path_factory.mktemp("chains"), {}

    def module(name):
        if name not in found:
            (root / f"{name}.yaml").write_text(HEAD % name + CHAINS[name])
            plan = planned_file(root / f"{name}.yaml")
            write_files(render_all([plan]), root)
            found[name] = getattr(
                emulate_package(root / name, cache=emulation_cache, checked=False), plan.spec.class_name
            )
        torch.manual_seed(2)
        made = found[name](5, 6)
        made.fusegen_strict = True
        return made

    return module


@pytest.mark.parametrize("name", CHAINS)
def test_of_further_inputs_and_of_several_regions(chains, copies, name) -> None:
    """As long as all is in one format. What alone is in channels_last has its gradient so, which is not copied."""
    module = chains(name)
    copies(type(module))
    x, y = torch.randn(2, 5, 6, 7), torch.randn(2, 6, 6, 7)
    for last in (False, True):
        assert not differences(module, [in_format(x, last), in_format(y, last)]), last
    mixed = [x.requires_grad_(), in_format(y, True).requires_grad_()]
    found = grads(module, module, mixed)
    assert [strides(found[place]) for place in (0, 1)] == [strides(each) for each in mixed]


def test_several_regions_gradient_is_copied_once(chains) -> None:
    module, x = chains("regions_of_images"), torch.randn(2, 5, 6, 7, requires_grad=True)
    y = torch.randn(2, 6, 6, 7, requires_grad=True)
    made = module(x, y)
    for wanted in (x, y):
        with Transposed(wanted.numel()) as seen:
            torch.autograd.grad(made, wanted, torch.ones_like(made), retain_graph=True)
        assert seen.count == 1
