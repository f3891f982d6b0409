"""The precisions of a module's product: what each computes, what is saved for gradients, what a call is told."""

from __future__ import annotations

import copy
import sys

import pytest

torch = pytest.importorskip("torch")

from torch.autograd.graph import saved_tensors_hooks  # noqa: E402

from tests.emulate.precisions import SOURCE, emulated, operator_of, product_error  # noqa: E402

pytestmark = pytest.mark.torch

WIDTH, OUT, ROWS = 600, 40, 33  # two chunks of the contraction index, and a part of one


@pytest.fixture(scope="module")
def linear(tmp_path_factory, emulation_cache):
    """A linear layer times a factor, whose module multiplies by pieces unless it is told otherwise."""
    return emulated(tmp_path_factory, emulation_cache)


@pytest.fixture(scope="module", params=["our own kernel", "the library"])
def either(request, linear, tmp_path_factory, emulation_cache):
    """The same by either way to multiply pieces."""
    return linear if request.param != "the library" else emulated(tmp_path_factory, emulation_cache, by_library=True)


@pytest.fixture(params=["C++", "Python"])
def autograd(request, linear, monkeypatch):
    monkeypatch.setattr(operator_of(linear), "in_cpp", request.param == "C++")


def made(linear, precision="fp32_split", *, rows=ROWS, width=WIDTH, out=OUT):
    torch.manual_seed(5)
    return linear(width, out, precision=precision), torch.randn(rows, width)


def exact(module, x, grad=None):
    """The chain in double precision: result, and gradients of x and the weight."""
    other, x = copy.deepcopy(module).double(), x.detach().double().requires_grad_()
    y = other.fusegen_reference(x)
    y.backward(torch.ones_like(y) if grad is None else grad.double())
    return y.detach(), x.grad, other.fc.weight.grad


def test_the_constructor_takes_a_precision(linear) -> None:
    assert linear(8, 8).fusegen_precision == "fp32_split"  # the spec's
    assert linear(8, 8, precision="bf16").fusegen_precision == "bf16"
    for wrong in ("tf32", "IEEE", None, 32, ["ieee"]):
        with pytest.raises(ValueError, match="precision must be one of ieee, fp32_split, bf16, fp16, got"):
            linear(8, 8, precision=wrong)
    with pytest.raises(TypeError):
        linear(8, 8, 0.5, "ieee")


def test_a_changed_precision_is_that_of_the_next_call(linear) -> None:
    module, x = made(linear)
    by_pieces = module(x)
    module.fusegen_precision = "bf16"
    rounded = module(x)
    assert (rounded - by_pieces).abs().max() > 1e-4
    module.fusegen_precision = "single"
    with pytest.raises(ValueError, match="got 'single'"):
        module(x)


def test_the_precision_is_no_state_but_goes_with_a_copy(linear) -> None:
    module, _ = made(linear, "fp16")
    assert list(module.state_dict()) == ["fc.weight", "fc.bias"]
    assert copy.deepcopy(module).fusegen_precision == "fp16"


def test_the_reference_is_plain_pytorch(linear) -> None:
    module, x = made(linear, "bf16")
    expected = torch.nn.functional.linear(x, module.fc.weight, module.fc.bias) * module.factor
    assert torch.equal(module.fusegen_reference(x), expected)


@pytest.mark.parametrize("case", ["ieee", "bfloat16", "autocast", "no columns"])
def test_nothing_is_split_where_there_is_nothing_to_split(linear, case, monkeypatch) -> None:
    def fail(values):
        raise AssertionError("split")

    monkeypatch.setattr(operator_of(linear), "split", fail)
    module, x = made(linear, "ieee" if case == "ieee" else "fp32_split", width=0 if case == "no columns" else WIDTH)
    if case == "bfloat16":
        module, x = module.to(torch.bfloat16), x.to(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16, enabled=case == "autocast"):
        y = module(x.requires_grad_())
    y.sum().backward()
    assert module.fc.weight.grad is not None


def test_ieee_is_the_product_of_the_library(linear) -> None:
    module, x = made(linear, "ieee")
    expected = torch.mm(x, module.fc.weight.t()) + module.fc.bias
    assert torch.equal(module(x), expected * module.factor)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_pieces_give_what_float32_gives(linear, autograd, dims) -> None:
    module, x = made(linear)
    x = {1: x[0], 2: x, 3: x.view(3, 11, WIDTH)}[dims]
    given = x.clone().requires_grad_()
    y = module(given)
    grad = torch.randn_like(y)
    y.backward(grad)
    for mine, theirs in zip((y, given.grad, module.fc.weight.grad), exact(module, x, grad), strict=True):
        assert mine.shape == theirs.shape
        assert (mine - theirs).norm() / theirs.norm() < 3e-7


@pytest.mark.parametrize("precision", ["ieee", "fp32_split", "bf16", "fp16"])
def test_a_module_says_in_which_precision_it_multiplies(linear, precision) -> None:
    module, x = made(linear)
    module.fusegen_precision = precision
    assert module.fusegen_kernels(x) == (True, "", precision)
    assert module.bfloat16().fusegen_kernels(x.bfloat16()) == (True, "", "ieee")  # of 16 bits there is one way alone


def test_a_call_twice_gives_the_same_bits(either) -> None:
    module, x = made(either)
    runs = []
    for _ in range(2):
        given = x.clone().requires_grad_()
        (weight,) = torch.autograd.grad(module(given).square().sum(), module.fc.weight)
        runs.append((module(given), weight))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


@pytest.mark.parametrize("layout", ["transposed", "sliced", "offset"])
def test_operands_of_any_strides(either, layout) -> None:
    def laid_out(values):
        if layout == "transposed":
            return values.t().contiguous().t()
        if layout == "sliced":
            return torch.stack([values, values], dim=-1)[..., 0]
        return torch.cat([values.new_zeros(1), values.flatten()])[1:].view(values.shape)

    module, x = made(either)
    grad = torch.randn(ROWS, OUT)
    expected = exact(module, x, grad)
    module.fc.weight = torch.nn.Parameter(laid_out(module.fc.weight.detach()))
    given = laid_out(x).requires_grad_()
    y = module(given)
    y.backward(laid_out(grad))
    for mine, theirs in zip((y, given.grad, module.fc.weight.grad), expected, strict=True):
        assert (mine - theirs).norm() / theirs.norm() < 3e-7


@pytest.mark.parametrize("source", SOURCE)
def test_rows_of_any_scale_keep_their_accuracy(either, source) -> None:
    """Each element of a product is off by no more than a float32 sum of its terms may be."""
    module, x = made(either)
    module.fc.bias.data.zero_()
    with torch.no_grad():
        module.fc.weight.copy_(SOURCE[source](module.fc.weight))
    x = SOURCE[source](x).requires_grad_()
    y = module(x)
    grad = SOURCE[source](torch.randn(ROWS, OUT))
    y.backward(grad)
    weight, dz = module.fc.weight.detach(), grad * module.factor
    assert product_error(y / module.factor, x.detach(), weight.t()) < 1
    assert product_error(x.grad, dz, weight) < 1
    assert product_error(module.fc.weight.grad, dz.t(), x.detach()) < 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", ["x", "weight", "gradient"])
def test_nan_and_infinity_come_out_where_float32_has_them(either, place, value) -> None:
    module, x = made(either)
    grad = torch.randn(ROWS, OUT)
    with torch.no_grad():
        {"x": x, "weight": module.fc.weight, "gradient": grad}[place][3, 7] = value
    found = []
    for precision in ("fp32_split", "ieee"):
        module.fusegen_precision = precision
        given = x.clone().requires_grad_()
        y = module(given)
        found.append([y, *torch.autograd.grad(y, [given, module.fc.weight], grad)])
    for mine, theirs in zip(*found, strict=True):
        assert torch.equal(mine.isnan(), theirs.isnan())
        assert torch.equal(mine.isposinf(), theirs.isposinf()) and torch.equal(mine.isneginf(), theirs.isneginf())


@pytest.mark.parametrize("frozen", ["nothing", "x", "weight", "both"])
def test_pieces_are_saved_for_the_gradients_that_need_them(linear, autograd, frozen) -> None:
    module, x = made(linear)
    x.requires_grad_(frozen not in ("x", "both"))
    module.fc.weight.requires_grad_(frozen not in ("weight", "both"))
    saved = []
    with saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        y = module(x)
    of_pieces = [tensor.numel() for tensor in saved if tensor.dtype == torch.float16]
    # The weight's pieces serve the gradient of x, and those of x the weight's.
    counts = {rows: 2 * (rows * WIDTH + 2 * rows + 2) for rows in (ROWS, OUT)}
    assert sorted(of_pieces) == sorted(
        ([counts[OUT]] if x.requires_grad else []) + ([counts[ROWS]] if module.fc.weight.requires_grad else [])
    )
    y.sum().backward()
    _, of_x, of_weight = exact(module, x)
    for tensor, expected in ((x, of_x), (module.fc.weight, of_weight)):
        assert (tensor.grad is not None) == tensor.requires_grad
        if tensor.requires_grad:
            assert (tensor.grad - expected).norm() / expected.norm() < 3e-7


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("precision", ["fp32_split", "bf16"])
def test_a_compiled_module_gives_the_same_bits(linear, precision, training) -> None:
    module, x = made(linear, precision)
    module.train(training)
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    results = []
    for function in (module, compiled):
        given = x.clone().requires_grad_()
        y = function(given)
        results.append([y, *torch.autograd.grad(y.square().sum(), [given, module.fc.weight])])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    with torch.no_grad():
        module.fc.weight.mul_(2)  # of which a constant in the compiled graph would know nothing
    assert torch.equal(module(x), compiled(x))


def test_a_second_derivative_is_refused_as_before(linear) -> None:
    module, x = made(linear)
    x.requires_grad_()
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(module(x).sum(), x, create_graph=True)


def test_the_op_refuses_what_is_no_precision(linear) -> None:
    module, x = made(linear)
    operator, weight, bias = operator_of(linear), module.fc.weight.detach(), module.fc.bias.detach()
    pieces = [operator.split(x), operator.split(weight)]

    def call(mode, precision, *of_operands):
        tensors = [x, weight, bias]
        if mode == 1:
            tensors = [tensor.to(torch.bfloat16) for tensor in tensors]
        return operator.forward(*tensors, mode, 1.0, precision, *of_operands)

    assert torch.equal(call(0, 1, *pieces), linear_result(module, x))
    for arguments, message in {
        (0, 4, None, None): "precision: expected 0 to 3, got 4",
        (0, -1, None, None): "precision: expected 0 to 3, got -1",
        (1, 2, None, None): "precision: expected 0 to 0, got 2",
        (0, 1, None, pieces[1]): "operand_pieces: expected a tensor, got None",
        (0, 1, pieces[0], None): "weight_pieces: expected a tensor, got None",
        (0, 1, pieces[1], pieces[1]): "operand_pieces: expected shape",
        (0, 1, pieces[0], pieces[1].float()): "weight_pieces: expected dtype Half, got Float",
    }.items():
        with pytest.raises(RuntimeError, match=message):
            call(*arguments)
    with pytest.raises(RuntimeError, match="values: expected dtype Float"):
        operator.split(x.double())
    with pytest.raises(RuntimeError, match="values: expected shape"):
        operator.split(x[0])


def linear_result(module, x):
    factor, module.factor = module.factor, 1.0
    try:
        return module(x)
    finally:
        module.factor = factor


def test_a_chain_without_a_linear_layer_has_no_precision(linear) -> None:
    support = sys.modules[linear.__mro__[1].__module__]
    assert not hasattr(support.FusedModule, "fusegen_precision")
