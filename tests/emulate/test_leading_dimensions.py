"""Inputs [..., channels] of chains that act on each row alone. On the CPU, through the emulator; `elsewhere` is the
same package without kernels for the CPU."""

from __future__ import annotations

import copy
import warnings

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from tests.emulate.building import module_class, write  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

SPEC = """
fusegen: 1
name: on_rows
about: what acts on each row alone
dims: {batch: 64, in_features: 32, features: 32}
arguments:
  in_features: {type: dim}
  features: {type: dim}
  divisor: {type: float, default: 2.0}
inputs: {x: [batch, in_features], residual: [batch, features]}
dtypes: [float32, bfloat16]
chain:
  - {op: linear, name: fc, out_features: features}
  - {op: silu, save: gate}
  - {op: layer_norm, name: ln}
  - {op: add, input: residual}
  - {op: mul, parameter: scale, shape: [features], init: randn}
  - {op: add, parameter: shift, shape: [1], init: 0.5}
  - {op: mul, value: gate, detach: true}
  - {op: log_softmax}
  - {op: rms_norm, name: rms}
  - {op: div, constant: divisor}
"""
ROW_WISE = """
fusegen: 1
name: without_linear
about: no linear layer, a parameter of two dimensions
dims: {batch: 64, features: 32}
arguments: {features: {type: dim}}
inputs: {x: [batch, features], r: [batch, features]}
dtypes: [float32]
chain:
  - {op: mul, parameter: scale, shape: [1, features], init: randn}
  - {op: maximum, input: r}
  - {op: tanh}
"""
WIDTH, CHANNELS = 6, 8
LEADING = [(2, 3), (2, 1, 3), (1, 1), (5, 1, 1, 1)]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("leading")


@pytest.fixture(scope="module")
def package(root, emulation_cache):
    plan = write("on_rows", SPEC, root)
    return emulate_package(root / plan.spec.name, cache=emulation_cache, checked=False)


@pytest.fixture(scope="module")
def without_linear(root, emulation_cache):
    plan = write("without_linear", ROW_WISE, root)
    return emulate_package(root / plan.spec.name, cache=emulation_cache, checked=False)


@pytest.fixture(scope="module")
def elsewhere_class(root, package):
    return module_class(write("on_rows", SPEC, root), root)


@pytest.fixture
def module(package):
    torch.manual_seed(3)
    return package.OnRows(WIDTH, CHANNELS)


@pytest.fixture(params=["kernels", "elsewhere"])
def anywhere(request, package, elsewhere_class):
    torch.manual_seed(3)
    return (package.OnRows if request.param == "kernels" else elsewhere_class)(WIDTH, CHANNELS)


def drawn(*sizes):
    torch.manual_seed(4)
    return [torch.randn(*sizes, width, requires_grad=True) for width in (WIDTH, CHANNELS)]


def results(call, module, inputs, grad):
    """The output and every gradient."""
    y = call(*inputs)
    return [y, *torch.autograd.grad(y, [*inputs, *module.parameters()], grad)]


def assert_same(found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
        bound = 2e-5 if theirs.dtype == torch.float32 else 5e-2
        torch.testing.assert_close(mine, theirs, rtol=0, atol=bound * max(1, float(theirs.detach().abs().max())))


@pytest.mark.parametrize("in_cpp", [True, False], ids=["C++", "Python"])
@pytest.mark.parametrize("sizes", [*LEADING, ()], ids=str)
def test_the_kernels_give_the_bits_of_the_view(sizes, in_cpp, package, module, monkeypatch):
    monkeypatch.setattr(package._fused, "in_cpp", in_cpp)
    inputs, grad = drawn(*sizes), torch.randn(*sizes, CHANNELS)
    use = module.fusegen_kernels(*inputs)
    assert use and use.reason == ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = results(module, module, inputs, grad)
    assert found[0].shape == (*sizes, CHANNELS) and found[0].is_contiguous()
    flat = [x.detach().reshape(-1, x.shape[-1]).requires_grad_() for x in inputs]
    on_view = results(module, module, flat, grad.reshape(-1, CHANNELS))
    assert all(torch.equal(a, b.reshape(a.shape)) for a, b in zip(found, on_view, strict=True))
    assert_same(found, results(module.fusegen_reference, module, inputs, grad))


def test_contiguous_inputs_are_not_copied(package, module):
    seen = {}

    class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.setdefault(func, args)
            return func(*args, **(kwargs or {}))

    inputs = drawn(2, 3)
    with Recorder():
        y = module(*inputs)
    given = seen[package._fused.forward]
    for x in inputs:
        same = [a for a in given if isinstance(a, torch.Tensor) and a.data_ptr() == x.data_ptr()]
        assert [a.shape for a in same] == [(6, x.shape[-1])]
    assert y._base is not None and y._base.shape == (6, CHANNELS)
    copies = {torch.ops.aten.clone.default, torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default}
    assert not copies & seen.keys()


LAYOUTS = {
    "transposed": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "last dimension strided": lambda x: torch.stack((x, x), dim=-1)[..., 0],
    "sliced rows": lambda x: torch.cat((x, x), dim=1)[:, : x.shape[1]],
    "expanded": lambda x: x[:1].expand(x.shape),
    "misaligned": lambda x: torch.cat((x.new_zeros(1), x.flatten()))[1:].view(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides(layout, anywhere):
    inputs = [LAYOUTS[layout](x.detach()).requires_grad_() for x in drawn(2, 3)]
    grad = torch.randn(2, 3, CHANNELS)
    found = results(anywhere, anywhere, inputs, grad)
    assert_same(found, results(anywhere.fusegen_reference, anywhere, inputs, grad))
    for each in (LAYOUTS[layout](grad), grad[:1, :1, :1].expand(grad.shape)):
        inputs = drawn(2, 3)
        found = results(anywhere, anywhere, inputs, each)
        assert_same(found, results(anywhere.fusegen_reference, anywhere, inputs, each))


def test_autocast(module):
    inputs = drawn(2, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert module.fusegen_kernels(*inputs)
        y = module(*inputs)
    flat = [x.detach().flatten(0, 1).requires_grad_() for x in inputs]
    with torch.autocast("cpu", torch.bfloat16):
        on_view = module(*flat)
    assert y.dtype == on_view.dtype and torch.equal(y, on_view.view(y.shape))
    grad = torch.randn_like(y)
    y.backward(grad)
    on_view.backward(grad.flatten(0, 1))
    assert all(torch.equal(a.grad.flatten(0, 1), b.grad) for a, b in zip(inputs, flat, strict=True))


@pytest.mark.parametrize("sizes", [(2, 3), (4, 2, 3), ()], ids=str)
def test_torch_compile_without_graph_break(sizes, module):
    inputs, grad = drawn(*sizes), torch.randn(*sizes, CHANNELS)
    compiled = torch.compile(copy.deepcopy(module), fullgraph=True, backend="aot_eager")
    found = results(compiled, compiled, inputs, grad)
    assert all(torch.equal(a, b) for a, b in zip(found, results(module, module, inputs, grad), strict=True))
    with torch.no_grad():
        assert torch.equal(compiled(*inputs), module(*inputs))


def test_as_few_graphs_as_for_matrices(module):
    counts = []
    for shapes in ([(5,), (6,), (9,)], [(2, 3), (4, 5), (3, 7)]):
        torch._dynamo.reset()
        counter = CompileCounterWithBackend("aot_eager")
        compiled = torch.compile(module, fullgraph=True, backend=counter)
        for sizes in shapes:
            inputs = drawn(*sizes)
            assert torch.equal(compiled(*inputs), module(*inputs))
        counts.append(counter.frame_count)
    assert counts[1] == counts[0] < 3


@pytest.mark.parametrize("sizes", [(0,), (0, 4), (2, 0), (2, 0, 3)], ids=str)
def test_no_rows(sizes, anywhere):
    inputs = drawn(*sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = anywhere(*inputs)
    assert y.shape == (*sizes, CHANNELS)
    y.sum().backward()
    assert all(not x.grad.numel() and x.grad.shape == x.shape for x in inputs)
    assert all(not parameter.grad.any() for parameter in anywhere.parameters())
    assert not anywhere.fusegen_kernels(*inputs)


def test_the_result_may_be_changed_in_place(anywhere):
    inputs = drawn(2, 3)
    y = anywhere(*inputs)
    y.mul_(2).sum().backward()
    doubled = [x.grad.clone() for x in inputs]
    again = drawn(2, 3)
    anywhere(*again).mul(2).sum().backward()
    assert all(torch.equal(a, b.grad) for a, b in zip(doubled, again, strict=True))


def test_inputs_of_different_numbers_of_dimensions_are_refused(anywhere):
    x, residual = drawn(2, 3)
    for pair in ((x, residual[0]), (x[0], residual), (x[0, 0], residual[0])):
        with pytest.raises(ValueError, match="on_rows: inputs must have as many dimensions each, got"):
            anywhere(*pair)


def test_no_dimension_at_all_is_refused(anywhere):
    with pytest.raises(ValueError, match=r"on_rows: inputs must be \[..., channels\], got \[\]"):
        anywhere(torch.tensor(1.0), torch.tensor(1.0))


def test_another_width_is_refused(anywhere):
    x, residual = drawn(2, 3)
    with pytest.raises(ValueError, match=r"x must be \[\*, 6\], got \[2, 3, 7\]"):
        anywhere(torch.randn(2, 3, WIDTH + 1), residual)


@pytest.mark.filterwarnings("ignore:on_rows")
@pytest.mark.parametrize("other", [(3, 2), (6, 1), (1, 6), (1, 3), (2, 1)], ids=str)
def test_other_leading_dimensions_of_a_further_input_are_pytorchs_affair(other, anywhere):
    """The product of some is that of the first input's, and PyTorch broadcasts or refuses."""
    x, residual = drawn(2, 3)[0], drawn(*other)[1]
    use = anywhere.fusegen_kernels(x, residual)
    assert not use and "where the kernels take torch.float32 [2, 3, 8]" in use.reason
    try:
        expected = anywhere.fusegen_reference(x, residual)
    except RuntimeError as error:
        with pytest.raises(type(error)):
            anywhere(x, residual)
        return
    assert torch.equal(anywhere(x, residual), expected)


def test_a_module_on_meta_is_shapes_alone(anywhere):
    y = anywhere.to("meta")(*(x.detach().to("meta") for x in drawn(2, 3)))
    assert y.device.type == "meta" and y.shape == (2, 3, CHANNELS)


def test_second_derivatives_are_refused(anywhere):
    inputs = drawn(2, 3)
    with pytest.raises(RuntimeError, match="on_rows has no second derivative"):
        torch.autograd.grad(anywhere(*inputs).square().sum(), inputs[0], create_graph=True)


@pytest.mark.filterwarnings("ignore:on_rows")
def test_vmap_takes_dimensions_away(anywhere):
    x, residual = (x.detach() for x in drawn(2, 3))
    expected = anywhere.fusegen_reference(x, residual)
    for call in (torch.func.vmap(anywhere), torch.func.vmap(torch.func.vmap(anywhere))):
        torch.testing.assert_close(call(x, residual), expected)


@pytest.mark.parametrize("sizes", [(7,), *LEADING], ids=str)
def test_without_a_linear_layer(sizes, without_linear):
    torch.manual_seed(3)
    module = without_linear.WithoutLinear(CHANNELS)
    inputs = [torch.randn(*sizes, CHANNELS, requires_grad=True) for _ in range(2)]
    assert module.fusegen_kernels(*inputs)
    grad = torch.randn(*sizes, CHANNELS)
    found = results(module, module, inputs, grad)
    assert_same(found, results(module.fusegen_reference, module, inputs, grad))


def test_a_parameter_of_two_dimensions_would_make_a_vector_a_matrix(without_linear):
    module = without_linear.WithoutLinear(CHANNELS)
    vector = torch.randn(CHANNELS)
    assert module.fusegen_reference(vector, vector).shape == (1, CHANNELS)
    expected = r"must be \[..., rows, channels\], got \[8\]: the parameter scale has two dimensions"
    with pytest.raises(ValueError, match=expected):
        module(vector, vector)


def test_a_module_inside_another(module):
    """As in a transformer: between layers that take any dimensions."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.fused = nn.Linear(WIDTH, WIDTH), module

        def forward(self, x, residual):
            return self.fused(self.first(x), residual) + residual

    block = Block()
    x, residual = drawn(4, 5)
    found = results(block, block, [x, residual], torch.ones(4, 5, CHANNELS))
    module.forward = module.fusegen_reference
    assert found[0].isfinite().all()
    assert_same(found, results(block, block, [x, residual], torch.ones(4, 5, CHANNELS)))
