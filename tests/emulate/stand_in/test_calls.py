"""How a module is made and called: what is refused, with kernels and without, and what autograd, torch.func, tracers
and profilers see of it."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import fx, nn  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from tests.emulate.stand_in.chain import CHANNELS, ROWS, WIDTH  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]


# The same calls are accepted and refused with kernels and without


TENSORS = ["fc.weight", "fc.bias", "bn.weight", "scale", "bn.running_mean", "bn.num_batches_tracked"]


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_on_another_device_are_refused(name, anywhere, inputs):
    owner, _, attribute = name.rpartition(".")
    owner = anywhere.get_submodule(owner)
    value = getattr(owner, attribute).detach().to("meta")
    setattr(owner, attribute, nn.Parameter(value) if attribute in owner._parameters else value)
    with pytest.raises(RuntimeError, match="meta"):
        anywhere(*inputs)


def test_the_backward_op_refuses_mixed_devices_too(package, module, inputs):
    seen = []

    class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is package._train.backward:
                seen.append(args)
            return func(*args, **(kwargs or {}))

    with Recorder():
        module(*inputs).sum().backward()
    arguments = list(seen[0])
    for index, value in enumerate(arguments):
        if isinstance(value, torch.Tensor):
            mixed = [a.to("meta") if i == index else a for i, a in enumerate(arguments)]
            with pytest.raises(RuntimeError, match="expected device"):
                package._train.backward(*mixed)


def test_a_module_on_meta_is_shapes_alone(anywhere, inputs):
    y = anywhere.to("meta")(*(x.to("meta") for x in inputs))
    assert y.device.type == "meta" and y.shape == (ROWS, CHANNELS)


@pytest.mark.parametrize("shape", [(WIDTH,), (2, ROWS, WIDTH)], ids=["1d", "3d"])
def test_other_ranks_are_refused(shape, anywhere, inputs):
    with pytest.raises(ValueError, match=r"stands_in: inputs must be \[rows, channels\], got"):
        anywhere(torch.randn(shape), inputs[1])


def test_another_width_is_refused(anywhere, inputs):
    with pytest.raises(ValueError, match=r"x must be \[\*, 6\], got \[9, 7\]"):
        anywhere(torch.randn(ROWS, WIDTH + 1), inputs[1])


def test_second_derivatives_are_refused(anywhere, inputs):
    y = anywhere(*inputs).square().sum()
    (first,) = torch.autograd.grad(y, inputs[0], retain_graph=True)
    assert first.isfinite().all()
    with pytest.raises(RuntimeError, match="stands_in has no second derivative: use create_graph=False, or call"):
        torch.autograd.grad(anywhere(*inputs).square().sum(), inputs[0], create_graph=True)


def test_derivatives_of_what_follows_are_not_refused(anywhere, inputs):
    """As of a penalty on the result: the chain itself is differentiated once."""
    y = anywhere(*inputs)
    (first,) = torch.autograd.grad(y.square().sum(), y, create_graph=True)
    torch.testing.assert_close(first, 2 * y)


def test_the_result_may_be_changed_in_place(anywhere, inputs):
    y = anywhere(*inputs)
    y.mul_(2).sum().backward()
    assert inputs[0].grad.isfinite().all()


@pytest.mark.filterwarnings("ignore:stands_in")
@pytest.mark.parametrize("dtypes", [("double", "double"), ("bfloat16", "float"), ("float", "bfloat16")])
def test_dtypes_without_kernels_are_eager(dtypes, anywhere, inputs):
    """The norm and what follows in the second dtype."""
    first, second = (getattr(torch, name) for name in dtypes)
    anywhere.to(second).fc.to(first)
    given = [inputs[0].detach().to(first), inputs[1].detach().to(second)]
    try:
        expected = copy.deepcopy(anywhere).fusegen_reference(*given)
    except RuntimeError as error:  # what PyTorch refuses is refused
        with pytest.raises(type(error)):
            anywhere(*given)
        return
    assert "float64" in anywhere.fusegen_kernels(*given).reason or first != second
    torch.testing.assert_close(anywhere(*given), expected, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:stands_in")
def test_a_bfloat16_module_under_autocast(module, inputs):
    module.bfloat16()
    given = [x.detach().bfloat16() for x in inputs]
    with torch.autocast("cpu", torch.bfloat16):
        expected = copy.deepcopy(module).fusegen_reference(*given)
        assert "no kernel for bfloat16 with bfloat16 with bfloat16" in module.fusegen_kernels(*given).reason
        y = module(*given)
    assert y.dtype == expected.dtype
    torch.testing.assert_close(y, expected, rtol=0, atol=0)


# torch.func, forward mode


@pytest.mark.filterwarnings("ignore:stands_in")
def test_transforms(anywhere, inputs):
    x, r = (value.detach() for value in inputs)
    anywhere.eval()
    weights = {name: value.detach() for name, value in anywhere.named_parameters()}

    def loss(weights, x, r):
        return torch.func.functional_call(anywhere, weights, (x, r)).square().sum()

    leaves = {name: value.clone().requires_grad_() for name, value in weights.items()}
    expected = torch.autograd.grad(loss(leaves, x, r), list(leaves.values()))
    found = torch.func.grad(loss)(weights, x, r)
    for name, each in zip(leaves, expected, strict=True):
        torch.testing.assert_close(found[name], each, rtol=1e-4, atol=1e-5)
    per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(weights, x[:, None], r[:, None])
    for name, each in zip(leaves, expected, strict=True):
        torch.testing.assert_close(per_sample[name].sum(0), each, rtol=1e-4, atol=1e-5)
    jacobian = torch.func.jacrev(lambda x: anywhere(x, r))(x)
    assert jacobian.shape == (ROWS, CHANNELS, ROWS, WIDTH)
    torch.testing.assert_close(torch.func.jacfwd(lambda x: anywhere(x, r))(x), jacobian, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:stands_in")
@pytest.mark.parametrize("record", [True, False], ids=["grad", "no_grad"])
def test_forward_mode(record, anywhere, inputs):
    x, r = (value.detach() for value in inputs)
    tangent = torch.randn_like(x)
    anywhere.eval()
    with torch.set_grad_enabled(record), forward_ad.dual_level():
        y = anywhere(forward_ad.make_dual(x, tangent), r)
        found = forward_ad.unpack_dual(y).tangent
    expected = torch.func.jvp(lambda x: anywhere.fusegen_reference(x, r), (x,), (tangent,))[1]
    torch.testing.assert_close(found, expected)


# What autograd, tracers and profilers see


@pytest.mark.parametrize("in_cpp", [True, False], ids=["C++", "Python"])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_running_statistics_do_not_move_unseen(mode, in_cpp, package, module, inputs, monkeypatch):
    for operator in (package._train, package._eval):
        assert operator.in_cpp
        monkeypatch.setattr(operator, "in_cpp", in_cpp)
    y = module.eval()(*inputs)
    versions = [buffer._version for buffer in module.buffers()]
    with mode():
        module.train()(*inputs)
    assert all(buffer._version > before for buffer, before in zip(module.buffers(), versions, strict=True))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_floating_point_operations_are_counted(module, inputs):
    product = 2 * ROWS * WIDTH * CHANNELS
    with FlopCounterMode(display=False) as counter:
        assert module.fusegen_kernels(*inputs)
        y = module(*inputs)
    assert counter.get_total_flops() == product
    with FlopCounterMode(display=False) as counter:
        y.sum().backward()
    assert counter.get_total_flops() == 2 * product


def test_symbolic_traces_have_it_as_a_leaf(module, inputs):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fused = module

        def forward(self, x, r):
            return self.fused(x, r) * 2

    traced = fx.symbolic_trace(Model())
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"] == ["fused"]
    module.eval()
    assert torch.equal(traced(*inputs), module(*inputs) * 2)
    with pytest.raises(RuntimeError, match="StandsIn cannot be traced into"):
        fx.symbolic_trace(module)


def test_scripting_says_what_to_do(module):
    with pytest.raises(NotImplementedError, match="use torch.compile"):
        torch.jit.script(nn.Sequential(module))


# The constructor


def test_device_and_dtype(package):
    module = package.StandsIn(WIDTH, CHANNELS, device="meta", dtype=torch.bfloat16)
    floating = [value for value in module.state_dict().values() if value.is_floating_point()]
    assert {value.dtype for value in floating} == {torch.bfloat16}
    assert {value.device.type for value in module.state_dict().values()} == {"meta"}


def test_reset_parameters_draws_as_the_constructor_does(package, inputs):
    torch.manual_seed(11)
    expected = package.StandsIn(WIDTH, CHANNELS, initial=0.25)
    module = package.StandsIn(WIDTH, CHANNELS, initial=0.25, device="meta").to_empty(device="cpu")
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data.fill_(77)
    torch.manual_seed(11)
    module.reset_parameters()
    for (name, mine), (_, theirs) in zip(module.state_dict().items(), expected.state_dict().items(), strict=True):
        assert torch.equal(mine, theirs), name


def test_the_text_of_a_module_shows_its_parameters_and_constants(module):
    text = repr(module)
    assert "scale=[8], shift=[1], divisor=2.0" in text and "(bn): BatchNorm1d(8" in text
