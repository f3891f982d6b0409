"""Where the kernels run in place of submodules, and where PyTorch's own operators do, by what a user did to the module
and how it is called. On the CPU, through the emulator; `elsewhere` is the same package without kernels for the CPU."""

from __future__ import annotations

import copy
import warnings

import pytest

torch = pytest.importorskip("torch")

from torch import fx, nn  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.nn.utils import parametrizations, prune  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from tests.emulate.building import module_class, write  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

SPEC = """
fusegen: 1
name: stands_in
about: every kind of thing that a module holds
dims: {batch: 64, in_features: 32, out_features: 32}
arguments:
  in_features: {type: dim}
  out_features: {type: dim}
  divisor: {type: float, default: 2.0}
  initial: {type: float, default: 0.5}
inputs: {x: [batch, in_features], residual: [batch, out_features]}
dtypes: [float32]
chain:
  - {op: linear, name: fc, out_features: out_features}
  - {op: batch_norm, name: bn}
  - {op: add, input: residual}
  - {op: mul, parameter: scale, shape: [out_features], init: randn}
  - {op: add, parameter: shift, shape: [1], init: initial}
  - {op: div, constant: divisor}
  - {op: silu}
"""
ROWS, WIDTH, CHANNELS = 9, 6, 8


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("stand_in")


@pytest.fixture(scope="module")
def package(root, emulation_cache):
    plan = write("stands_in", SPEC, root)
    return emulate_package(root / plan.spec.name, cache=emulation_cache, modes=[0])


@pytest.fixture(scope="module")
def elsewhere_class(root, package):
    return module_class(write("stands_in", SPEC, root), root)


@pytest.fixture(params=["kernels", "elsewhere"])
def anywhere(request, package, elsewhere_class):
    """A module whose kernels can run here, and one without kernels for the CPU."""
    torch.manual_seed(3)
    return (package.StandsIn if request.param == "kernels" else elsewhere_class)(WIDTH, CHANNELS)


@pytest.fixture
def module(package):
    torch.manual_seed(3)
    return package.StandsIn(WIDTH, CHANNELS)


@pytest.fixture
def inputs():
    torch.manual_seed(4)
    return [torch.randn(ROWS, WIDTH, requires_grad=True), torch.randn(ROWS, CHANNELS, requires_grad=True)]


def same_as_eager(module, inputs) -> None:
    """Output, every gradient and the statistics are those of the submodules as they are now."""
    buffers = [buffer.clone() for buffer in module.buffers()]
    grad, found = torch.randn(ROWS, CHANNELS), []
    for call in (module, module.fusegen_reference):
        for buffer, before in zip(module.buffers(), buffers, strict=True):
            buffer.copy_(before)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = call(*inputs)
        wanted = [each for each in (*inputs, *module.parameters()) if each.requires_grad]
        gradients = torch.autograd.grad(y, wanted, grad, allow_unused=True)
        found.append([y, *gradients, *(buffer.clone() for buffer in module.buffers())])
    for mine, theirs in zip(*found, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5 * max(1, float(theirs.detach().abs().max())))


def test_the_kernels_run(module, inputs):
    use = module.fusegen_kernels(*inputs)
    assert use and use.reason == ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module(*inputs), module.eval()(*inputs)
    same_as_eager(module, inputs)


class Other(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


class Quantised(torch.Tensor):
    """A tensor with arithmetic of its own, as quantisation libraries put into a layer."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        plain = [a.as_subclass(torch.Tensor) * 3 if isinstance(a, cls) else a for a in args]
        return func(*plain, **(kwargs or {}))


def low_rank(module):
    """As LoRA libraries do that patch a layer in place."""
    plain = module.fc.forward
    module.fc.forward = lambda x: plain(x) + x.sum()


def call_impl(module):
    plain = module.bn._call_impl
    module.bn._call_impl = lambda x: plain(x) + 1


def quantise(module):
    del module.fc.weight
    module.fc.weight = torch.randn(CHANNELS, WIDTH).as_subclass(Quantised)


CHANGES = {
    "a forward of its own": low_rank,
    "a call of its own": call_impl,
    "another type": lambda m: setattr(m, "fc", Other(WIDTH, CHANNELS)),
    "a hook": lambda m: m.fc.register_forward_hook(lambda *_: _[2] + 1),
    "a pre-hook": lambda m: m.bn.register_forward_pre_hook(lambda _, x: (x[0] + 1,)),
    "a backward hook": lambda m: m.bn.register_full_backward_hook(lambda _, g, __: (g[0] * 2,)),
    "weight norm": lambda m: parametrizations.weight_norm(m.fc),
    "pruning": lambda m: prune.l1_unstructured(m.fc, "weight", amount=0.4),
    "an identity": lambda m: setattr(m, "bn", nn.Identity()),
    "no bias in batch norm": lambda m: setattr(m.bn, "bias", None),
    "no linear bias": lambda m: setattr(m.fc, "bias", None),
    "a quantised weight": quantise,
    "a parameter of another shape": lambda m: setattr(m, "shift", nn.Parameter(torch.randn(CHANNELS))),
    "a constant per channel": lambda m: setattr(m, "divisor", torch.rand(CHANNELS) + 1),
    "another eps": lambda m: setattr(m.bn, "eps", 0.5),
    "a count in 32 bits": lambda m: setattr(m.bn, "num_batches_tracked", m.bn.num_batches_tracked.int()),
    "statistics with strides": lambda m: setattr(m.bn, "running_mean", torch.zeros(CHANNELS, 2)[:, 0]),
    "a function in its place": lambda m: m.__dict__.update(bn=lambda x: 2 * x),
    "a tensor before the parameter": lambda m: m.fc.__dict__.update(weight=torch.randn(CHANNELS, WIDTH)),
    "momentum below zero": lambda m: setattr(m.bn, "momentum", -0.1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_user_did_to_a_submodule_counts(change, module, inputs):
    CHANGES[change](module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        use = module.fusegen_kernels(*inputs)
    assert bool(use) == (change in ("another eps", "a tensor before the parameter")), use.reason
    same_as_eager(module, inputs)


def test_a_patched_class_and_hooks_for_all_modules(module, inputs, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(nn.BatchNorm1d, "forward", lambda self, x: 2 * x)
        assert not module.fusegen_kernels(*inputs)
        same_as_eager(module, inputs)
    handle = nn.modules.module.register_module_forward_hook(lambda m, _, y: y + 1 if isinstance(m, nn.Linear) else None)
    try:
        assert "all modules" in module.fusegen_kernels(*inputs).reason
        same_as_eager(module, inputs)
    finally:
        handle.remove()
    assert module.fusegen_kernels(*inputs)


@pytest.mark.parametrize("name", ["fc.weight", "bn.bias", "bn.running_var"])
def test_another_layout_is_left_to_pytorch(name, module, inputs):
    owner, _, attribute = name.partition(".")
    owner = module.get_submodule(owner)
    sparse = getattr(owner, attribute).detach().to_sparse()
    setattr(owner, attribute, nn.Parameter(sparse) if attribute in owner._parameters else sparse)
    assert "strided" in (reason := module.fusegen_kernels(*inputs).reason) or "sparse" in reason


@pytest.mark.parametrize(
    "name", ["Linear.__call__", "Linear._call_impl", "Module._wrapped_call_impl", "BatchNorm1d._check_input_dim"]
)
def test_patched_methods_of_classes(name, module, inputs, monkeypatch):
    owner, method = name.split(".")
    plain = getattr(getattr(nn, owner), method)
    monkeypatch.setattr(getattr(nn, owner), method, lambda self, *args: plain(self, *args))
    assert "was replaced" in module.fusegen_kernels(*inputs).reason


def test_patched_functions_and_modes(module, inputs, monkeypatch):
    linear = nn.functional.linear
    with monkeypatch.context() as patch:
        patch.setattr(nn.functional, "linear", lambda *args: 2 * linear(*args))
        assert not module.fusegen_kernels(*inputs)
        same_as_eager(module, inputs)

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return 2 * result if func is linear else result

    with Mode():
        assert not module.fusegen_kernels(*inputs)
    with torch.device("cpu"):
        assert module.fusegen_kernels(*inputs)


def test_strict_holds_where_a_call_is_traced(module, inputs):
    module.fc.register_forward_hook(lambda *_: None)
    module.fusegen_strict = True
    with pytest.raises(Exception, match="fusegen_strict is set"):
        torch.compile(module, fullgraph=True, backend="eager")(*inputs)


def test_falling_back_is_told_once_and_can_be_forbidden(module, inputs):
    module.fc.register_forward_hook(lambda *_: None)
    with pytest.warns(UserWarning, match="stands_in: PyTorch's own operators run, .*: fc has hooks") as told:
        module(*inputs), module(*inputs)
    assert len(told) == 1 and told[0].filename == __file__
    module.fusegen_strict = True
    with pytest.raises(RuntimeError, match="fusegen_strict is set, and the kernels cannot run: fc has hooks"):
        module(*inputs)
    assert not module.fusegen_kernels(*inputs)


def test_asking_changes_nothing(module, inputs):
    module.bn.momentum = None
    before = copy.deepcopy(module.state_dict())
    assert module.fusegen_kernels(*inputs)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_strict_elsewhere(elsewhere_class, inputs):
    module = elsewhere_class(WIDTH, CHANNELS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module(*inputs)
    assert "no kernels" in module.fusegen_kernels(*inputs).reason
    module.fusegen_strict = True
    with pytest.raises(RuntimeError, match="fusegen_strict"):
        module(*inputs)


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
