"""Generated modules as users have them - module, binding, kernels - on the CPU, through the emulator."""

from __future__ import annotations

import copy
import importlib
import re
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch.utils import checkpoint  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.plan.load import planned_file  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.verify.checks import behaviour  # noqa: E402
from fusegen.verify.checks.compared import compare_module  # noqa: E402
from fusegen.verify.checks.training import compare_steps  # noqa: E402
from tests.chains.originals import CHAINS  # noqa: E402

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]
BATCH_NORMS = ("matmul_bn_bias_div_swish", "gemm_scale_bn")
GROUP_NORMS = ("gemm_bias_hardtanh_mish_groupnorm", "gemm_groupnorm_swish_multiply_swish")
SEEDS = (*BATCH_NORMS, *GROUP_NORMS)
# One of each kind has float16 too, whose kernels are those of bfloat16 with other conversions.
IN_FLOAT16 = (BATCH_NORMS[0], GROUP_NORMS[0])
# For tests of what batch norm keeps.
batch_norms = pytest.mark.parametrize("chain", BATCH_NORMS, indirect=True, scope="module")
SIZES = ((33, 70, 96, 6), (1, 24, 32, 4), (2, 24, 32, 4), (31, 37, 41, 1))


@pytest.fixture(scope="module", params=SEEDS)
def chain(request, emulation_cache):
    chain = CHAINS[request.param]
    module = emulate_package(ROOT / "generated" / chain.spec, cache=emulation_cache, checked=False)
    return chain, getattr(module, module.__all__[0])


def pair(chain, size, dtype=torch.float32):
    """Generated and original module with the same random state, and an input."""
    original_chain, fused_class = chain
    rows, width, out, groups = size
    torch.manual_seed(sum(size))
    original = original_chain.module(*original_chain.arguments(width, out, groups))
    fused = fused_class(*original_chain.arguments(width, out, groups))
    for tensor in (*original.parameters(), *original.buffers()):
        if tensor.is_floating_point() and tensor.dim() < 2:
            tensor.data.uniform_(0.5, 1.5)
    fused.load_state_dict(original.state_dict())
    return fused.to(dtype), original.to(dtype), torch.randn(rows, width, dtype=dtype, requires_grad=True)


@pytest.fixture(params=["C++", "Python"])
def autograd(request, chain, monkeypatch):
    """Who differentiates the ops: the library in C++, or the Function of the package."""
    for operator in operators(chain):
        assert operator.in_cpp
        monkeypatch.setattr(operator, "in_cpp", request.param == "C++")


@pytest.fixture
def autograd_in_python(chain, monkeypatch):
    for operator in operators(chain):
        monkeypatch.setattr(operator, "in_cpp", False)


def operators(chain):
    """The package's operators, forward with backward."""
    values = vars(sys.modules[chain[1].__module__]).values()
    return [value for value in values if type(value).__name__ == "Operator"]


def failures(comparisons):
    return [item for item in comparisons if not item.ok]


def in_dtypes(*dtypes: torch.dtype):
    """Each chain in these, as far as it has them."""
    pairs = [(name, each) for name in SEEDS for each in dtypes if each != torch.float16 or name in IN_FLOAT16]
    ids = [f"{name}-{each}" for name, each in pairs]
    return pytest.mark.parametrize(("chain", "dtype"), pairs, indirect=["chain"], ids=ids, scope="module")


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
@in_dtypes(torch.float32, torch.bfloat16, torch.float16)
def test_as_accurate_as_eager(chain, size, train, dtype):
    fused, original, x = pair(chain, size, dtype)
    assert not failures(compare_module(fused, original, [x], train=train))


@in_dtypes(torch.bfloat16, torch.float16)
def test_as_accurate_as_eager_under_autocast(chain, dtype):
    """Which on the CPU has norms in 16 bits, and on CUDA in float32: `verify` compares with the latter."""
    fused, original, x = pair(chain, SIZES[0])
    assert not failures(compare_module(fused, original, [x], autocast_dtype=dtype))


def test_same_parameters_from_the_same_seed(chain):
    original_chain, fused_class = chain
    states = []
    for cls in (original_chain.module, fused_class):
        torch.manual_seed(7)
        states.append(cls(*original_chain.arguments(24, 32, 4)).state_dict())
    assert list(states[0]) == list(states[1])
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_what_the_python_module_says(chain):
    """Its source is compiled once for all packages here, and says of each what its binding registers."""
    package = sys.modules[chain[1].__module__]
    info = importlib.import_module(f"{package.__name__}._C").info()
    assert info["ops"] and all(hasattr(torch.ops.fusegen, op) for op in info["ops"])
    assert (info["name"], info["targets"], info["float64"]) == (chain[0].spec, ("sm_90",), False)
    assert len(list((Path(package.__file__).parents[1] / "support").glob("python_module.*.o"))) == 1


def test_three_optimiser_steps(chain):
    fused, original, x = pair(chain, SIZES[0])
    batches = [[torch.randn_like(x)] for _ in range(3)]
    assert not failures(compare_steps(fused, original, batches))


def test_frozen_parameters_and_strides(autograd, chain):
    fused, original, x = pair(chain, SIZES[0])
    assert not failures([*behaviour.frozen(fused, original, [x]), *behaviour.strides(fused, original, [x])])


def test_torch_compile_without_graph_break(autograd, chain):
    fused, original, x = pair(chain, SIZES[0])
    compiled = torch.compile(copy.deepcopy(fused), fullgraph=True, backend="aot_eager")
    grad = torch.randn(33, 96)
    for step in range(2):
        for module in (fused, compiled):
            module.zero_grad()
            module(x).backward(grad)
        pairs = zip(fused.named_parameters(), compiled.named_parameters(), strict=True)
        assert all(torch.equal(a.grad, b.grad) for (_, a), (_, b) in pairs), step
        assert all(torch.equal(a, b) for a, b in zip(fused.buffers(), compiled.buffers(), strict=True)), step


@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
def test_torch_compile_without_gradients(train, chain):
    fused, _, x = pair(chain, SIZES[0])
    other = copy.deepcopy(fused)
    compiled = torch.compile(other.train(train), fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert torch.equal(compiled(x), fused.train(train)(x))
    assert all(torch.equal(a, b) for a, b in zip(fused.buffers(), other.buffers(), strict=True))


@batch_norms
@pytest.mark.parametrize("momentum", [None, 0.0, 0.3, -0.2])
def test_running_statistics(momentum, chain):
    fused, original, x = pair(chain, SIZES[0])
    fused.bn.momentum = original.bn.momentum = momentum
    for _ in range(3):
        fused(x), original(x)
    for (name, mine), (_, theirs) in zip(fused.named_buffers(), original.named_buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6, msg=name)


def _without_running_statistics(bn):
    bn.running_mean = bn.running_var = None


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda bn: bn.num_batches_tracked.fill_(2**24 + 1), id="more than float32 can count"),
        pytest.param(lambda bn: bn.eval(), id="evaluation"),
        pytest.param(lambda bn: setattr(bn, "track_running_stats", False), id="no longer tracked"),
        pytest.param(lambda bn: setattr(bn, "num_batches_tracked", None), id="no count"),
        pytest.param(_without_running_statistics, id="no running statistics"),
    ],
)
@batch_norms
@pytest.mark.parametrize("momentum", [None, 0.3])
def test_batches_are_counted_as_in_eager(momentum, change, chain):
    fused, original, x = pair(chain, SIZES[0])
    for module in (fused, original):
        module.bn.momentum = momentum
        change(module.bn)
        module(x)
        with torch.no_grad():
            module(x)
    assert fused.bn.num_batches_tracked == original.bn.num_batches_tracked


@pytest.mark.parametrize("chain", GROUP_NORMS, indirect=True, scope="module")
@pytest.mark.parametrize("groups", [5, -4])
def test_groups_that_do_not_divide_the_channels_are_refused_as_in_eager(groups, chain):
    fused, original, x = pair(chain, SIZES[0])
    for module in (fused, original):
        next(each for each in module.modules() if isinstance(each, torch.nn.GroupNorm)).num_groups = groups
    with pytest.raises(RuntimeError) as expected:
        original(x)
    with pytest.raises(RuntimeError, match=re.escape(str(expected.value))):
        fused(x)


@pytest.mark.parametrize("chain", GROUP_NORMS, indirect=True, scope="module")
def test_the_backward_op_refuses_such_groups_too(autograd_in_python, chain):
    fused, _, x = pair(chain, SIZES[0])
    y = fused(x)
    mode, groups, *rest = y.grad_fn.scalars
    assert groups == 6
    y.grad_fn.scalars = (mode, 5, *rest)
    with pytest.raises(RuntimeError, match="backward: groups: expected a divisor of 96, got 5"):
        y.sum().backward()


@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
def test_the_same_gradients_from_python(train, chain, monkeypatch):
    fused, _, x = pair(chain, SIZES[0])
    wanted = [x, *fused.parameters()]
    grad, found = torch.randn(33, 96), []
    for in_cpp in (True, False):
        for operator in operators(chain):
            monkeypatch.setattr(operator, "in_cpp", in_cpp)
        y = fused.train(train)(x)
        assert (type(y.grad_fn).__name__ == "CppFunction") is in_cpp
        found.append([y, *torch.autograd.grad(y, wanted, grad)])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_a_graph_runs_again_only_where_it_was_kept(autograd, chain):
    fused, _, x = pair(chain, SIZES[0])
    y = fused(x)
    grad = torch.randn_like(y)
    first, again = (torch.autograd.grad(y, x, grad, retain_graph=kept) for kept in (True, False))
    assert torch.equal(*first, *again)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(y, x, grad)


def test_what_was_changed_since_is_noticed(autograd, chain):
    fused, _, x = pair(chain, SIZES[0])
    y = fused(x)
    with torch.no_grad():
        for parameter in fused.parameters():
            parameter.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_an_operand_is_kept_for_the_gradient_of_the_other_alone(autograd, chain):
    fused, _, x = pair(chain, SIZES[0])
    shapes = []
    for wanted in (True, False):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: shapes[-1].append(t.shape) or t, lambda t: t):
            shapes.append([])
            fused(x.detach().requires_grad_(wanted))
    weight = next(each for each in fused.parameters() if each.dim() == 2).shape
    assert weight in shapes[0] and weight not in shapes[1]
    assert x.shape in shapes[0] and x.shape in shapes[1]


def test_checkpointing(autograd, chain):
    fused, _, x = pair(chain, SIZES[0])
    fused.eval()
    wanted = [x, *fused.parameters()]
    plain = torch.autograd.grad(fused(x).sum(), wanted)
    kept = torch.autograd.grad(checkpoint.checkpoint(fused, x, use_reentrant=False).sum(), wanted)
    assert all(torch.equal(a, b) for a, b in zip(plain, kept, strict=True))


def test_second_derivatives_are_refused(autograd, chain):
    fused, _, x = pair(chain, SIZES[0])
    (first,) = torch.autograd.grad(fused(x).square().sum(), x, retain_graph=True)
    assert first.isfinite().all()
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(fused(x).square().sum(), x, create_graph=True)


@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
def test_the_same_without_gradients(train, chain):
    fused, _, x = pair(chain, SIZES[0])
    other = copy.deepcopy(fused)
    with torch.no_grad():
        y = other.train(train)(x)
    assert not y.requires_grad and torch.equal(y, fused.train(train)(x))
    assert all(torch.equal(a, b) for a, b in zip(fused.buffers(), other.buffers(), strict=True))


def test_tensors_in_place_of_parameters(chain):
    """As wrappers leave them that keep all parameters in one piece of memory: views of it, under the same names."""
    fused, _, x = pair(chain, SIZES[0])
    other = copy.deepcopy(fused)
    owners = [(module, name) for module in other.modules() for name in dict(module.named_parameters(recurse=False))]
    flat = torch.cat([torch.zeros(3), *(getattr(module, name).detach().flatten() for module, name in owners)])
    flat.requires_grad_()
    start = 3
    for module, name in owners:
        shape = getattr(module, name).shape
        delattr(module, name)
        setattr(module, name, flat[start : start + shape.numel()].view(shape))
        start += shape.numel()
    for module in (fused, other):
        module(x).square().sum().backward()
    expected = torch.cat([torch.zeros(3), *(parameter.grad.flatten() for parameter in fused.parameters())])
    # Views that start anywhere take other kernels, whose sums are rounded in another order.
    torch.testing.assert_close(flat.grad, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def test_the_op_names_what_does_not_fit(chain):
    fused, _, _ = pair(chain, SIZES[0])
    with pytest.raises(ValueError, match=r"x must be \[\*, 70\], got \[33, 71\]"):
        fused(torch.randn(33, 71))


def test_opcheck(chain):
    """In evaluation: opcheck calls an op several times, and running statistics would move each time."""
    fused, _, x = pair(chain, SIZES[0])
    op = operators(chain)[-1].forward
    seen = []

    class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is op:
                seen.append(args)
            return func(*args, **(kwargs or {}))

    with Recorder():
        fused.eval()(x)
    count = len(op._schema.arguments)
    differentiable = [index <= len(list(fused.parameters())) for index in range(count)]
    arguments = tuple(
        value.detach().requires_grad_(wanted) if isinstance(value, torch.Tensor) else value
        for value, wanted in zip(seen[0], differentiable, strict=True)
    )
    torch.library.opcheck(op, arguments)


def test_a_chain_of_one_activation(tmp_path, emulation_cache):
    """No linear layer, no parameter, one result: the ops return a tensor and save the input alone."""
    spec = tmp_path / "one_step.yaml"
    spec.write_text(
        "fusegen: 1\nname: one_step\nabout: one activation\ndims: {batch: 8, features: 16}\n"
        "inputs:\n  x: [batch, features]\ndtypes: [float32]\nchain:\n  - {op: relu}\n"
    )
    write_files(render_all([planned_file(spec)]), tmp_path / "generated")
    module = emulate_package(tmp_path / "generated" / "one_step", cache=emulation_cache, checked=False)
    x = torch.randn(5, 16, requires_grad=True)
    y = module.OneStep()(x)
    y.sum().backward()
    assert torch.equal(y, torch.relu(x)) and torch.equal(x.grad, (x > 0).float())
