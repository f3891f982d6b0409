"""Where the kernels run in place of submodules, and where PyTorch's own operators do, by what a user did to the module.

`elsewhere` is the same package without kernels for the CPU."""

from __future__ import annotations

import copy
import warnings

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, prune  # noqa: E402

from tests.emulate.stand_in.chain import CHANNELS, WIDTH, same_as_eager  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]


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
    "a parametrised statistic": lambda m: parametrizations.weight_norm(m.bn, "running_var", dim=None),
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
