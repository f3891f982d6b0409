"""What fuse() replaces in a model, what it leaves, and what of the model stays as it was."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import fusegen  # noqa: E402
from fusegen.errors import SpecError  # noqa: E402
from tests.fusing.models import Residual, losses, made  # noqa: E402


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fused")


@pytest.fixture(scope="module")
def case(directory):
    """A replaced model, its original, an input, the report."""
    model, x = made()
    original = copy.deepcopy(model)
    return model, original, x, fusegen.fuse(model, x, directory=directory, compile=False)


@pytest.fixture
def fused(case):
    """The same, to be changed by one test."""
    model, original, x, _ = case
    return copy.deepcopy(model), copy.deepcopy(original), x


def test_what_is_replaced(case, directory: Path) -> None:
    *_, report = case
    found = [(each.path, each.spec, " ".join(each.ops)) for each in report.replaced]
    assert found == [
        ("blocks.0", "residual", "linear layer_norm gelu mul mul add"),
        ("blocks.1", "residual", "linear layer_norm gelu mul mul add"),
        ("head[0:3]", "linear_batch_norm_silu", "linear batch_norm silu"),
        ("head[3:5]", "linear_relu", "linear relu"),
    ]
    names = {"residual", "linear_batch_norm_silu", "linear_relu"}
    assert {path.stem for path in (directory / "specs").iterdir()} == names == set(report.written)
    assert names < {path.name for path in (directory / "generated").iterdir()}


def test_what_is_left_has_a_reason(case) -> None:
    *_, report = case
    left = {each.path: each for each in report.left}
    assert left.keys() == {"mixing", "sorted", "unused"}
    assert left["mixing"].reason.startswith("a chain has no 'mT'")
    assert left["unused"].reason == "it is not called with these inputs"
    diagnostic = left["sorted"].diagnostic
    assert diagnostic.code == "FG703" and "torch.sort(y)" in diagnostic.source


def test_the_report(case, directory: Path) -> None:
    *_, report = case
    lines = str(report).splitlines()
    assert lines[0] == "replaced: 4"
    assert lines[1] == "  blocks.0, blocks.1 (Residual): linear, layer_norm, gelu, mul, mul, add"
    assert f"{directory / 'specs' / 'residual'}.yaml" in lines[2] and "saves" in lines[2]
    assert any("models.py:" in line and "sort" in line for line in lines)
    assert report.saving.bytes == sum(each.saving.bytes for each in report.replaced) > 0


def test_the_saving(case) -> None:
    """Of linear and ReLU without more: what ReLU and the sum of the bias's gradient move, but for one pass each way."""
    *_, report = case
    full, bias = 12 * 12 * 4, 12 * 4
    saving = report.replaced[-1].saving
    # ReLU: x to y; y and the gradient to another. The bias: that gradient to a sum.
    assert saving.eager == 2 * full + 3 * full + full + bias
    # The kernels read the product and the bias; then the gradient, and what tells the sign.
    assert saving.fused >= 2 * full + 3 * full


def test_all_objects_stay(case) -> None:
    model, x = made()
    before = {name: id(part) for name, part in model.named_modules()}
    tensors = {name: id(tensor) for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    keys, text = list(model.state_dict()), repr(model)
    fusegen.fuse(model, x, directory=case[3].specs.parent, compile=False)
    assert {name: id(part) for name, part in model.named_modules()} == before
    assert {name: id(tensor) for name, tensor in [*model.named_parameters(), *model.named_buffers()]} == tensors
    assert list(model.state_dict()) == keys and repr(model) == text
    assert isinstance(model.blocks[0], Residual) and isinstance(model.head, nn.Sequential)


def test_a_run_of_the_model_leaves_no_trace(directory: Path) -> None:
    model, x = made()
    model.train()
    model.head.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    fusegen.fuse(model, x, directory=directory, compile=False)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.training and not model.head[1].training
    assert not any(part._forward_hooks for part in model.modules())
    assert all(tensor.grad is None for tensor in model.parameters())


def test_results_and_training_on_a_cpu(fused) -> None:
    model, original, x = fused
    assert losses(model, [x]) == losses(original, [x])
    model.eval(), original.eval()
    assert torch.equal(model(x), original(x))


def test_an_optimizer_of_before_trains_it(directory: Path) -> None:
    model, x = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fusegen.fuse(model, x, directory=directory, compile=False)
    before = model.blocks[0].net[0].weight.detach().clone()
    model(x).square().mean().backward()
    optimizer.step()
    assert not torch.equal(model.blocks[0].net[0].weight, before)


def test_hooks_of_a_replaced_module_run(fused) -> None:
    model, _, x = fused
    seen = []
    model.blocks[0].register_forward_hook(lambda module, inputs, result: seen.append("forward"))
    model.blocks[0].register_full_backward_hook(lambda module, grads, results: seen.append("backward"))
    model(x.clone().requires_grad_()).sum().backward()
    assert seen == ["forward", "backward"]


def test_a_copy_has_its_own_tensors(fused) -> None:
    model, original, x = fused
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.blocks[0].scale.add_(1)
        original.blocks[0].scale.add_(1)
    region = other.blocks[0]._fusegen_regions[0]
    assert region.scale is other.blocks[0].scale and region._fusegen_owner is other.blocks[0]
    assert torch.equal(other(x), original(x)) and not torch.equal(model(x), original(x))


def test_tensors_are_followed(fused) -> None:
    """Another dtype, other objects by load_state_dict, another module in a place."""
    model, original, x = fused
    region = model.blocks[0]._fusegen_regions[0]
    model.to(torch.bfloat16)
    assert region.scale.dtype == torch.bfloat16
    assert model.head._fusegen_regions[0].batch_norm1d.running_mean is model.head[1].running_mean
    model.load_state_dict(original.state_dict(), assign=True)
    model.blocks[0].net[0] = nn.Linear(16, 16)
    model(x)
    assert region.scale is model.blocks[0].scale and region.net_0.weight is model.blocks[0].net[0].weight


def test_a_file_of_the_model_has_the_original(fused) -> None:
    model, _, x = fused
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert type(loaded.blocks[0]) is Residual and type(loaded.head) is nn.Sequential
    assert b"fusegen.fusing" not in pickle.dumps(model)
    model.eval(), loaded.eval()
    assert torch.equal(loaded(x), model(x))


def test_other_tracers_see_the_original(fused) -> None:
    model, original, x = fused
    block, head = model.blocks[0], model.head.eval()
    assert torch.equal(torch.fx.symbolic_trace(block)(x), block(x))
    assert torch.equal(torch.fx.symbolic_trace(head)(x), head(x))
    with pytest.warns(DeprecationWarning):
        scripted = torch.jit.script(head)
    assert torch.equal(scripted(x), head(x))


def test_calls_by_name(fused) -> None:
    model, original, x = fused
    assert torch.equal(model.blocks[0](x=x), original.blocks[0](x))
    assert torch.equal(model.head(input=x), original.head(x))


def test_a_second_call_finds_nothing(fused, directory: Path) -> None:
    model, _, x = fused
    report = fusegen.fuse(model, x, directory=directory, compile=False)
    assert not report.replaced and not report.written
    assert {each.reason for each in report.left if each.path == "blocks.0"} == {"it was replaced before"}


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    model, x = made()
    report = fusegen.fuse(model, x, directory=tmp_path / "fused", dry_run=True)
    assert len(report.replaced) == 4 and "would be replaced: 4" in str(report)
    assert not (tmp_path / "fused").exists() and type(model.blocks[0]) is Residual


def test_example_inputs_may_be_named(tmp_path: Path) -> None:
    model, x = made()
    report = fusegen.fuse(model, {"x": x}, directory=tmp_path, dry_run=True)
    assert len(report.replaced) == 4


def test_a_model_that_does_not_run(tmp_path: Path) -> None:
    model, _ = made()
    with pytest.raises(SpecError, match="FG701.*does not run with these inputs"):
        fusegen.fuse(model, torch.randn(3, 5), directory=tmp_path)


def test_the_model_itself_may_be_the_chain(tmp_path: Path) -> None:
    model, x = Residual(16), torch.randn(4, 16)
    report = fusegen.fuse(model, x, directory=tmp_path, compile=False)
    assert [each.path for each in report.replaced] == [""] and "the model (Residual)" in str(report)
    assert model.state_dict().keys() == Residual(16).state_dict().keys()


def test_widths_share_a_spec(tmp_path: Path) -> None:
    """The numbers of features are arguments; another number of the chain is another spec."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(a, b), nn.LayerNorm(b), nn.GELU()) for a, b in ((8, 16), (16, 4))))
    model.append(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4, eps=0.5), nn.GELU()))
    report = fusegen.fuse(model, torch.randn(6, 8), directory=tmp_path, compile=False)
    names = ["linear_layer_norm_gelu"] * 2 + ["linear_layer_norm_gelu_2"]
    assert [each.spec for each in report.replaced] == names
