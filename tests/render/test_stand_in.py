"""What else makes a submodule another one than the package was generated for, asked of a module that is not built."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.emulate.building import module_class, write  # noqa: E402

SPEC = """
fusegen: 1
name: norms_of_rows
about: norms that have a shape or a number of groups
dims: {batch: 64, features: 32}
arguments: {features: {type: dim}}
inputs: {x: [batch, features]}
dtypes: [float32]
chain:
  - {op: layer_norm, name: ln, bias: false}
  - {op: rms_norm, name: rms}
  - {op: group_norm, name: gn, num_groups: 2}
  - {op: group_norm, name: again, num_groups: 2}
  - {op: batch_norm, name: bn, track_running_stats: false}
"""


@pytest.fixture(scope="module")
def cls(tmp_path_factory):
    root = tmp_path_factory.mktemp("norms")
    return module_class(write("norms_of_rows", SPEC, root), root)


CHANGES = {
    "": ("", "no kernels"),
    "a shape": ("ln.normalized_shape", (2, 4)),
    "a shape of rms norm": ("rms.normalized_shape", (4,)),
    "a bias": ("ln.bias", nn.Parameter(torch.zeros(8))),
    "statistics": ("bn.running_mean", torch.zeros(8)),
    "one of two numbers of groups": ("again.num_groups", 4),
    "too many groups": ("gn.num_groups", 3),
    "an eps": ("gn.eps", torch.tensor(1e-5)),
}
REASONS = {
    "": "where there are no kernels",
    "a shape": "normalized_shape",
    "a shape of rms norm": "normalized_shape",
    "a bias": "ln.bias is not None",
    "statistics": "bn.running_mean is not None",
    "one of two numbers of groups": "numbers of groups",
    "too many groups": "PyTorch refuses the call",
    "an eps": "a constant is a Tensor",
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes(change, cls) -> None:
    module = cls(8)
    path, value = CHANGES[change]
    owner, _, name = path.rpartition(".")
    if change:
        setattr(module.get_submodule(owner), name, value)
    assert REASONS[change] in module.fusegen_kernels(torch.randn(5, 8)).reason


TRACKED = """
fusegen: 1
name: tracked_norms
about: two batch norms with running statistics
dims: {batch: 64, features: 32}
arguments: {features: {type: dim}}
inputs: {x: [batch, features]}
dtypes: [float32]
chain:
  - {op: batch_norm, name: bn}
  - {op: relu}
  - {op: batch_norm, name: again}
"""
OF_STATISTICS = {
    "a negative momentum": ("bn.momentum", -0.1, "negative momentum"),
    "a momentum that is no number": ("again.momentum", "0.1", "a constant is a str"),
    "one of both statistics": ("again.running_var", None, "only one of its running statistics"),
    "one norm in evaluation": ("again.training", False, "in training and some in evaluation"),
    "other channels": ("bn.running_mean", torch.zeros(4), "bn.running_mean is torch.float32 [4]"),
    "a count of floats": ("bn.num_batches_tracked", torch.tensor(0.0), "bn.num_batches_tracked is torch.float32"),
}


@pytest.mark.parametrize("change", OF_STATISTICS)
def test_running_statistics(change, tmp_path) -> None:
    module = module_class(write("tracked_norms", TRACKED, tmp_path), tmp_path)(8)
    path, value, reason = OF_STATISTICS[change]
    owner, _, name = path.rpartition(".")
    setattr(module.get_submodule(owner), name, value)
    assert reason in module.fusegen_kernels(torch.randn(5, 8)).reason
