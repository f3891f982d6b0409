"""A call that repeats an earlier one: what a user did in between counts as it would in a module's first call."""

from __future__ import annotations

import copy
import gc
import itertools
import sys
import warnings
import weakref

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils import swap_tensors  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from tests.emulate.building import write  # noqa: E402
from tests.emulate.stand_in.chain import CHANNELS, ROWS, WIDTH, same_as_eager  # noqa: E402
from tests.emulate.stand_in.test_changed_modules import CHANGES  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc, pytest.mark.filterwarnings("ignore:stands_in")]


@pytest.fixture
def remembered(package):
    support = f"{package._support.__name__}.remembered"
    return sys.modules[support]


@pytest.fixture(params=["training", "evaluation"])
def called(request, module, inputs, remembered):
    """A module that was called before, and remembers it."""
    module.train(request.param == "training")
    module(*inputs)
    assert remembered.recall(module, None, inputs)
    return module


def outcome(module, inputs):
    """What a call returns or raises, what it warns of, the gradients, and the state behind it."""
    torch.manual_seed(5)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            y = module(*inputs)
            wanted = [each for each in (*inputs, *module.parameters()) if each.requires_grad]
            gradients = torch.autograd.grad(y, wanted, torch.ones_like(y), allow_unused=True) if wanted else ()
            found = [y, *gradients]
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
    return [*found, sorted(str(each.message) for each in told), *module.state_dict().values()]


def assert_same(mine, theirs):
    assert len(mine) == len(theirs)
    for one, other in zip(mine, theirs, strict=True):
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
        else:
            assert one == other


def with_data(name, change):
    """Another tensor's data in place of a tensor's own: the same object, of another dtype or shape."""

    def changed(module):
        tensor = module.get_parameter(name) if name in dict(module.named_parameters()) else module.get_buffer(name)
        tensor.data = change(tensor.data)

    return changed


def fewer_channels(module):
    for tensor in (module.fc.weight, *module.fc.parameters(), *module.bn.parameters(), module.scale):
        tensor.data = tensor.data[: CHANNELS // 2]
    for tensor in (module.bn.running_mean, module.bn.running_var):
        tensor.data = tensor.data[: CHANNELS // 2]


class Computed(nn.Linear):
    pass


MORE = {
    "another constant": lambda m: setattr(m, "divisor", 3.0),
    "a constant as an integer": lambda m: setattr(m, "divisor", 2),
    "a constant that is true": lambda m: setattr(m, "divisor", True),
    "a constant as a tensor": lambda m: setattr(m, "divisor", torch.tensor(2.0, requires_grad=True)),
    "a constant of zero": lambda m: setattr(m, "divisor", 0.0),
    "no eps": lambda m: setattr(m.bn, "eps", 0.0),
    "another momentum": lambda m: setattr(m.bn, "momentum", 0.5),
    "an average of all batches": lambda m: setattr(m.bn, "momentum", None),
    "training": lambda m: m.train(),
    "evaluation": lambda m: m.eval(),
    "a norm in evaluation": lambda m: m.bn.eval(),
    "statistics that stay": lambda m: setattr(m.bn, "track_running_stats", False),
    "another weight": lambda m: setattr(m.fc, "weight", nn.Parameter(torch.ones(CHANNELS, WIDTH))),
    "a weight that is put in": lambda m: m.fc._parameters.update(weight=nn.Parameter(torch.ones(CHANNELS, WIDTH))),
    "another layer": lambda m: setattr(m, "fc", nn.Linear(WIDTH, CHANNELS)),
    "other attributes": lambda m: object.__setattr__(m.bn, "__dict__", {**m.bn.__dict__, "eps": 0.5}),
    "another class": lambda m: setattr(m.fc, "__class__", Computed),
    "other values": lambda m: nn.init.normal_(m.fc.weight),
    "no gradient of the weight": lambda m: m.fc.weight.requires_grad_(False),
    "in float64": lambda m: m.double(),
    "in 16 bits": lambda m: m.bfloat16(),
    "a weight in float64": with_data("fc.weight", torch.Tensor.double),
    "a weight with strides": with_data("fc.weight", lambda x: x.t().contiguous().t()),
    "a weight of another width": with_data("fc.weight", lambda x: x[:, 1:]),
    "a norm in float64": with_data("bn.weight", torch.Tensor.double),
    "a mean with strides": with_data("bn.running_mean", lambda x: torch.stack([x, x], 1)[:, 0]),
    "a mean of another length": with_data("bn.running_mean", lambda x: x[1:]),
    "a scale of another length": with_data("scale", lambda x: x[1:]),
    "fewer channels": fewer_channels,
    "a subclass swapped in": lambda m: swap_tensors(m.fc.weight, torch.randn(CHANNELS, WIDTH).as_subclass(Doubled)),
    "an attribute": lambda m: setattr(m, "note", "of a user"),
    "an attribute less": lambda m: delattr(m, "divisor"),
    "a module less": lambda m: m._modules.pop("bn"),
    "a module under another name": lambda m: m._modules.update(norm=m._modules.pop("bn")),
    "strict": lambda m: (m.fc.register_forward_hook(lambda *_: None), setattr(m, "fusegen_strict", True)),
}


class Doubled(torch.Tensor):
    """A tensor that counts twice."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        plain = [a.as_subclass(torch.Tensor) * 2 if isinstance(a, cls) else a for a in args]
        return func(*plain, **(kwargs or {}))


@pytest.mark.parametrize("change", {**CHANGES, **MORE})
def test_a_change_counts_as_in_a_first_call(change, called, inputs, remembered):
    fresh = copy.deepcopy(called)
    for module in (called, fresh):
        torch.manual_seed(6)
        {**CHANGES, **MORE}[change](module)
    for _ in range(3):
        remembered.forget(fresh)
        assert_same(outcome(called, inputs), outcome(fresh, inputs))


GIVEN = {
    "another number of rows": lambda x, r: (x[:4], r[:4]),
    "a row": lambda x, r: (x[:1], r[:1]),
    "no rows": lambda x, r: (x[:0], r[:0]),
    "more dimensions": lambda x, r: (x[None], r[None]),
    "other strides": lambda x, r: (x.t().contiguous().t(), r),
    "another width": lambda x, r: (x[:, 1:], r),
    "other inputs": lambda x, r: (x + 1, r - 1),
    "inputs without gradients": lambda x, r: (x.detach(), r.detach()),
    "a wider input beside": lambda x, r: (x, r[:, :1]),
    "float64": lambda x, r: (x.double(), r.double()),
    "a subclass": lambda x, r: (x.as_subclass(Doubled), r),
    "no tensor": lambda x, r: (x, 1.0),
    "meta": lambda x, r: (x.detach().to("meta"), r.detach().to("meta")),
    "sparse": lambda x, r: (x.detach().to_sparse(), r),
}


@pytest.mark.parametrize("given", GIVEN)
def test_other_inputs_count_as_in_a_first_call(given, called, inputs, remembered):
    fresh, others = copy.deepcopy(called), GIVEN[given](*(x.detach().requires_grad_() for x in inputs))
    for each in (others, inputs, others, inputs):
        remembered.forget(fresh)
        assert_same(outcome(called, each), outcome(fresh, each))


def test_one_tensor_as_both_inputs(package, remembered):
    torch.manual_seed(3)
    module = package.StandsIn(CHANNELS, CHANNELS)
    fresh, tensors = copy.deepcopy(module), [*torch.randn(2, ROWS, CHANNELS), module.fc.weight.detach()]
    for first, second in itertools.product(tensors, tensors):
        given = [first[:CHANNELS], second[:CHANNELS]] if first is not second else [first, first]
        for _ in range(2):
            remembered.forget(fresh)
            assert_same(outcome(module, given), outcome(fresh, given))


def test_a_parameter_as_an_input(package, remembered):
    torch.manual_seed(3)
    module = package.StandsIn(CHANNELS, CHANNELS).eval()
    fresh = copy.deepcopy(module)
    for _ in range(2):
        assert_same(
            outcome(module, [module.fc.weight, torch.ones(CHANNELS, CHANNELS)])[:1],
            outcome(fresh, [fresh.fc.weight, torch.ones(CHANNELS, CHANNELS)])[:1],
        )
    other = [nn.Parameter(torch.ones(CHANNELS, CHANNELS)), torch.ones(CHANNELS, CHANNELS)]
    assert_same(outcome(module, other), outcome(fresh, other))


def patched_linear(patch):
    linear = nn.functional.linear
    patch.setattr(nn.functional, "linear", lambda *args: 2 * linear(*args))


PATCHES = {
    "a method": lambda patch: patch.setattr(nn.BatchNorm1d, "forward", lambda self, x: 2 * x),
    "a call": lambda patch: patch.setattr(nn.Linear, "__call__", lambda self, x: x[:, :1].expand(-1, CHANNELS)),
    "a check": lambda patch: patch.setattr(nn.BatchNorm1d, "_check_input_dim", lambda self, x: x.fail),
    "a function": patched_linear,
}


@pytest.mark.parametrize("name", PATCHES)
def test_patches_of_torch_count(name, called, inputs, remembered, monkeypatch):
    fresh = copy.deepcopy(called)
    with monkeypatch.context() as patch:
        PATCHES[name](patch)
        assert_same(outcome(called, inputs), outcome(fresh, inputs))
    remembered.forget(fresh)
    assert_same(outcome(called, inputs), outcome(fresh, inputs))


def hooks():
    return nn.modules.module.register_module_forward_hook(lambda m, _, y: y + 1 if isinstance(m, nn.Linear) else None)


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return 2 * result if func is nn.functional.linear else result


class Counting(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.ops.aten.addmm.default else result


AROUND = {
    "hooks for all modules": hooks,
    "a function mode": Mode,
    "a dispatch mode": Counting,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "forward mode": torch.autograd.forward_ad.dual_level,
    "a device": lambda: torch.device("cpu"),
    "fake tensors": lambda: torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True),
}


@pytest.mark.parametrize("name", AROUND)
def test_what_is_around_a_call_counts(name, called, inputs, remembered):
    given = [x.detach() for x in inputs]
    called.requires_grad_(False)(*given)
    fresh = copy.deepcopy(called)
    with AROUND[name]():
        for _ in range(2):
            mine, theirs = outcome(called, given), outcome(fresh, given)
            remembered.forget(fresh)
    assert type(mine[0]) is type(theirs[0])
    if name != "fake tensors":
        assert_same(mine, theirs)
    assert_same(outcome(called, inputs), outcome(fresh, inputs))


def test_transforms_and_traces(called, inputs):
    called.eval()
    x, r = (each.detach() for each in inputs)
    called(x, r)
    expected = called(x, r)
    jacobian = torch.func.jacrev(lambda x: called(x, r))(x)
    assert jacobian.shape == (ROWS, CHANNELS, ROWS, WIDTH)
    torch.testing.assert_close(torch.compile(called, fullgraph=True, backend="eager")(x, r), expected)
    torch.testing.assert_close(torch.jit.trace(called, (x, r), check_trace=False)(x + 1, r), called(x + 1, r))
    weights = {name: value.detach() * 2 for name, value in called.named_parameters()}
    found = torch.func.functional_call(called, weights, (x, r))
    fresh = copy.deepcopy(called)
    fresh.load_state_dict({**called.state_dict(), **weights})
    torch.testing.assert_close(found, fresh(x, r), rtol=0, atol=0)
    torch.testing.assert_close(called(x, r), expected, rtol=0, atol=0)


@pytest.mark.parametrize("when", ["made so", "made so later"])
def test_a_subclass_may_compute_a_constant(when, package, inputs):
    class Computes(package.StandsIn):
        value = 2.0
        divisor = property(lambda self: self.value, lambda self, _: None)

    torch.manual_seed(3)
    module = (Computes if when == "made so" else package.StandsIn)(WIDTH, CHANNELS).eval()
    module(*inputs), module(*inputs)
    module.__class__ = Computes
    for value in (3.0, 4.0):
        Computes.value = value
        same_as_eager(module, inputs)


NORMALISED = """
fusegen: 1
name: remembers_widths
about: a norm whose shape is not that of its weight alone
dims: {batch: 64, in_features: 32, out_features: 32}
arguments: {in_features: {type: dim}, out_features: {type: dim}}
inputs: {x: [batch, in_features]}
dtypes: [float32]
chain:
  - {op: linear, name: fc, out_features: out_features}
  - {op: layer_norm, name: norm}
"""


def test_channels_that_a_norm_is_not_made_for(tmp_path, emulation_cache):
    plan = write("remembers_widths", NORMALISED, tmp_path)
    package = emulate_package(tmp_path / plan.spec.name, cache=emulation_cache, checked=False)
    module, x = getattr(package, package.__all__[0])(WIDTH, CHANNELS), torch.randn(ROWS, WIDTH)
    module(x), module(x)
    for tensor in module.parameters():
        tensor.data = tensor.data[:-1]
    with pytest.raises(RuntimeError, match="normalized_shape"):
        module(x)


def test_calls_choose_no_more(called, inputs, monkeypatch):
    """Otherwise nothing would be gained."""
    monkeypatch.setattr(type(called), "_fusegen_choose", None)
    same = called(*inputs), called(*(x * 2 for x in inputs))
    assert same[0].shape == same[1].shape


def test_shapes_and_changes_without_end_are_given_up(module, inputs, remembered):
    """Keeping what no later call finds takes time."""
    for rows in range(2, 400):
        module(torch.randn(rows, WIDTH), torch.randn(rows, CHANNELS))
    memory = module._fusegen_memories[None]
    assert len(memory.calls) <= 64 and memory.last_pause > 1
    looks = []
    original = remembered._Look.at
    remembered.forget(module)
    remembered._Look.at = classmethod(lambda cls, *args: looks.append(1) or original(*args))
    try:
        for index in range(100):
            module.bn.momentum = index / 100
            module(*inputs)
    finally:
        remembered._Look.at = original
    assert 1 < len(looks) < 20


def test_a_change_after_many_calls_is_no_reason_to_give_up(module, inputs, remembered):
    for epoch in range(12):
        module.train(epoch % 2 == 0)
        for _ in range(20):
            module(*inputs)
        assert remembered.recall(module, None, inputs)


def test_nothing_keeps_a_module_or_its_tensors(called, inputs):
    gc.collect()
    gc.disable()
    try:
        weight = weakref.ref(called.fc.weight)
        called.fc.weight = nn.Parameter(torch.ones(CHANNELS, WIDTH))
        called(*inputs), called(*inputs)
        assert weight() is None
    finally:
        gc.enable()


def test_copies_and_files_have_no_calls(called, inputs, remembered):
    for made in (copy.deepcopy(called), copy.copy(called)):
        assert remembered.recall(made, None, inputs) is None
    assert "_fusegen_memories" not in called.__getstate__()


@pytest.mark.parametrize(
    "kept", [(None, "a", 1, int), (None,), ({"a": 1}, "a", 1, int), (nn, "Linear", nn.Linear, type)]
)
def test_what_holds_what_it_held(kept, package):
    unchanged = package._package.unchanged
    own = {"a": 1}
    assert unchanged((kept,), own) == (len(kept) > 1)
    assert not unchanged((kept,), {"b": 1}) or kept[0] is not None
    assert not unchanged((kept, (nn, "Linear", nn.Conv1d, type)), own)
    assert not unchanged((kept, (nn, "Nothing", nn.Conv1d, type)), own)
    for wrong in ((), (1, {}), ((), 1), ((), {}, {})):
        with pytest.raises(TypeError, match="a tuple and a dict"):
            unchanged(*wrong)
