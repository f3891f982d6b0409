"""The pieces of a weight that a module is asked to keep: when they are used again, and when they must not be."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch")

from torch.nn.utils import parametrizations, parametrize, weight_norm  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from fusegen.verify.checks import operators  # noqa: E402
from tests.emulate.precisions import emulated, operator_of  # noqa: E402

pytestmark = pytest.mark.torch

WIDTH, OUT, ROWS = 24, 10, 5


@pytest.fixture(autouse=True)
def inference():
    """Pieces are kept where the weight is not to be trained."""
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def linear(tmp_path_factory, emulation_cache):
    return emulated(tmp_path_factory, emulation_cache)


@pytest.fixture
def splits(linear, monkeypatch):
    """How many rows each matrix had that was split, from now on."""
    operator, found = operator_of(linear), []
    split = operator.split
    monkeypatch.setattr(operator, "split", lambda values: found.append(len(values)) or split(values))
    return found


@pytest.fixture
def module(linear):
    torch.manual_seed(3)
    made = linear(WIDTH, OUT).eval()
    made.fusegen_keep_pieces = True
    return made


@pytest.fixture
def x():
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))


def fresh(module, x):
    """What a module that has kept nothing gives for the same weight."""
    other = type(module)(WIDTH, OUT).eval()
    other.load_state_dict(module.state_dict())
    return other(x)


def test_evaluation_alone_keeps_nothing(linear, x, splits) -> None:
    module = linear(WIDTH, OUT).eval()
    module(x), module(x)
    assert splits == [ROWS, OUT] * 2
    assert "_fusegen_kept" not in vars(module)


def written_by_data(weight):
    weight.data.copy_(torch.full_like(weight, 3))


def written_by_numpy(weight):
    weight.detach().numpy()[...] *= 3


def written_by_dlpack(weight):
    torch.from_dlpack(weight.detach()).mul_(3)


def swapped(weight):
    torch.utils.swap_tensors(weight, torch.nn.Parameter(weight * 3))


@pytest.mark.parametrize("write", [written_by_data, written_by_numpy, written_by_dlpack, swapped])
def test_no_write_goes_unnoticed(linear, x, write) -> None:
    """Unless pieces are to be kept: the first three count no version."""
    module = linear(WIDTH, OUT).eval()
    before = module(x)
    write(module.fc.weight)
    assert not torch.equal(module(x), before) and torch.equal(module(x), fresh(module, x))


def test_the_weight_is_split_once_where_pieces_are_kept(module, x, splits) -> None:
    first = module(x)
    assert splits == [ROWS, OUT]
    assert torch.equal(module(x), first) and torch.equal(module(x.requires_grad_()), first)
    assert splits == [ROWS, OUT, ROWS, ROWS]


def test_a_kept_weight_has_right_gradients(module, x, splits) -> None:
    module.requires_grad_(False)
    module(x)
    given = x.clone().requires_grad_()
    with torch.enable_grad():
        module(given).sum().backward()
    assert splits == [ROWS, OUT, ROWS]
    torch.testing.assert_close(given.grad, module.fc.weight.detach().sum(0).expand(ROWS, WIDTH) * module.factor)


def test_the_weight_is_split_each_time_in_training(module, x, splits) -> None:
    module.train()
    module(x), module(x)
    assert splits == [ROWS, OUT] * 2
    assert "_fusegen_kept" not in vars(module)


@torch.no_grad()
def in_place(module):
    module.fc.weight.mul_(1.5)


@torch.no_grad()
def in_place_through_a_view(module):
    module.fc.weight[2, 3] += 1


def loaded(module):
    module.load_state_dict({name: value + 1 for name, value in module.state_dict().items()})


def assigned(module):
    module.load_state_dict({name: value + 1 for name, value in module.state_dict().items()}, assign=True)


def stepped(module):
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    with torch.enable_grad():
        module(torch.ones(ROWS, WIDTH)).sum().backward()
    optimiser.step()


def another_parameter(module):
    module.fc.weight = torch.nn.Parameter(module.fc.weight.detach() * 2)


@torch.no_grad()
def another_parameter_with_the_same_data(module):
    """Which has been changed as often as the first one."""
    old = module.fc.weight
    module.fc.weight = torch.nn.Parameter(old.data)
    while module.fc.weight._version < old._version:
        module.fc.weight.mul_(1.5)


def other_data(module):
    module.fc.weight.data = module.fc.weight.detach() * 2


def another_in_its_place(module):
    swapped(module.fc.weight)


def there_and_back(module):
    """Rounds the weight; the new memory may well be where the old was."""
    module.to(torch.bfloat16).to(torch.float32)


def there_and_back_below(module):
    module.fc.bfloat16().float()


def drawn_anew(module):
    module.reset_parameters()


def written_through_data(module):
    """Which counts no version: evaluation has to begin again."""
    module.fc.weight.data.mul_(3)
    module.eval()


def through_training(module):
    module.train()
    module.fc.weight.data.mul_(3)
    module.eval()


CHANGES = (
    in_place, in_place_through_a_view, loaded, assigned, stepped, another_parameter,
    another_parameter_with_the_same_data, other_data, another_in_its_place, there_and_back,
    there_and_back_below, drawn_anew, written_through_data, through_training,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_weight_is_split_again(module, x, change, splits) -> None:
    before = module(x)
    change(module)
    splits.clear()
    after = module(x)
    assert splits == [ROWS, OUT]
    assert not torch.equal(after, before) and torch.equal(after, fresh(module, x))
    splits.clear()
    assert torch.equal(module(x), after) and splits == [ROWS]


@pytest.mark.parametrize("change", [in_place, other_data, there_and_back_below])
def test_many_changes_one_after_another(module, x, change) -> None:
    """Each frees memory that the next may get."""
    for _ in range(20):
        with torch.no_grad():
            module.fc.weight.add_(0.01)
        change(module)
        assert torch.equal(module(x), fresh(module, x))


def test_a_copy_keeps_pieces_of_its_own(module, x, splits) -> None:
    module(x)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert "_fusegen_kept" not in vars(other) and other.fusegen_keep_pieces
        in_place(other)
        splits.clear()
        assert torch.equal(other(x), fresh(other, x)) and not torch.equal(other(x), module(x))
        splits.clear()
        assert module(x) is not None and splits == [ROWS]


def test_a_shallow_copy_that_gets_another_weight(module, x) -> None:
    module(x)
    other = copy.copy(module)
    other._modules = {"fc": copy.deepcopy(module.fc)}
    in_place(other)
    assert torch.equal(other(x), fresh(other, x)) and torch.equal(module(x), fresh(module, x))


def test_a_file_has_no_pieces(module, x) -> None:
    def saved(whole):
        file = io.BytesIO()
        torch.save(whole, file)
        return len(file.getvalue())

    before = saved(module), saved(module.state_dict())
    module(x)
    assert (saved(module), saved(module.state_dict())) == before


def test_moving_a_module_gives_its_memory_back(module, x) -> None:
    module(x)
    module.to(torch.float64)
    assert "_fusegen_kept" not in vars(module)


def test_nothing_is_kept_of_a_tensor_without_versions(linear, x, splits) -> None:
    with torch.inference_mode():
        module = linear(WIDTH, OUT).eval()
        module.fusegen_keep_pieces = True
        before = module(x)
        module.fc.weight.mul_(2)
        assert not torch.equal(module(x), before)
        assert torch.equal(module(x), fresh(module, x))
    assert "_fusegen_kept" not in vars(module)


def test_a_parameter_is_kept_in_inference_mode(module, x, splits) -> None:
    with torch.inference_mode():
        module(x), module(x)
    assert splits == [ROWS, OUT, ROWS]


def test_pieces_of_inference_mode_serve_a_backward_pass(module, x) -> None:
    with torch.inference_mode():
        module(x)
    module.requires_grad_(False)
    given = x.clone().requires_grad_()
    with torch.enable_grad():
        module(given).sum().backward()
    assert given.grad is not None


def test_nothing_is_kept_of_a_weight_that_is_trained(module, x, splits) -> None:
    with torch.enable_grad():
        module(x), module(x)
    assert splits == 2 * [ROWS, OUT] and "_fusegen_kept" not in vars(module)


def test_nothing_is_a_constant_of_a_trace(module, x) -> None:
    module(x)
    traced = torch.jit.trace(module, x, check_trace=False)
    module.fc.weight.mul_(3)
    assert torch.equal(traced(x), fresh(module, x))


def test_what_watches_every_op_sees_the_split(module, x, splits) -> None:
    """Whoever traces by a dispatch mode would take kept pieces for a constant."""
    module(x)
    splits.clear()
    with FlopCounterMode(display=False) as counter:
        module(x)
    assert splits == [ROWS, OUT]
    assert counter.get_total_flops() == 2 * ROWS * WIDTH * OUT


def test_the_precision_is_changed_between_calls(module, x) -> None:
    first = module(x)
    module.fusegen_precision = "ieee"
    in_place(module)
    module(x)
    module.fusegen_precision = "fp32_split"
    assert torch.equal(module(x), fresh(module, x)) and not torch.equal(module(x), first)


@pytest.mark.parametrize("kind", [parametrizations.weight_norm, parametrizations.spectral_norm, weight_norm])
@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
def test_a_weight_that_is_computed_is_split_each_time(module, x, kind, splits) -> None:
    """It is another tensor in each call, of originals that may have changed."""
    module(x)
    kind(module.fc)
    module.eval()
    for _ in range(3):
        splits.clear()
        torch.testing.assert_close(module(x), module.fusegen_reference(x), rtol=1e-5, atol=1e-5)
        assert splits == [ROWS, OUT] and "_fusegen_kept" not in vars(module)
        for each in module.parameters():
            each.mul_(torch.rand_like(each) + 0.5)
    with parametrize.cached():
        assert torch.equal(module(x), module(x))


def test_a_copy_of_a_parametrised_module(module, x, splits) -> None:
    """Its class, of parametrize's making, copies all that it has."""
    module.register_buffer("more", torch.ones(2))
    parametrize.register_parametrization(module, "more", torch.nn.Identity())
    before = module(x)
    other = copy.deepcopy(module)
    assert not any(vars(other)["_fusegen_kept"].values())
    in_place(other)
    torch.testing.assert_close(other(x), other.fusegen_reference(x), rtol=1e-5, atol=1e-5)
    splits.clear()
    assert torch.equal(module(x), before) and splits == [ROWS]


def test_pieces_that_read_as_nan_are_no_other_result(linear):
    """For opcheck: the exponent of a row of small values is negative, and its bits are a NaN."""
    split, small = operator_of(linear).split, torch.full((ROWS, 9), 0.01)
    assert torch.isnan(split(small)).any()
    assert operators._checked(split, (small,)).ok
