"""Further inputs that broadcast, and masks: every kernel that reads them and sums their gradients, and the modules."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

import fusegen  # noqa: E402
from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.verify.subjects.emulated import EmulatedTail, tail_reference  # noqa: E402
from tests.emulate.building import kernels_of, write  # noqa: E402
from tests.emulate.test_chains import agreement, compare, schedules_of  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

SPEC = """
fusegen: 1
name: {name}
dims: {{batch: 64, features: 32}}
{arguments}inputs:
  x: [batch, features]
{inputs}
dtypes: [{dtypes}]
chain:
{chain}
"""
SHAPES = {
    "row": "[batch, 1]",
    "channel": "[features]",
    "flat": "[1, features]",
    "number": "[1]",
    "nothing": "[]",
    "full": "[batch, features]",
}
SHAPES |= {f"{name}_mask": shape for name, shape in SHAPES.items()}
BN = "{op: batch_norm, name: bn}"
CHAINS = {
    "of_rows": ("{op: mul, input: row}", "{op: div, input: row, plus: 3}", "{op: mul, mask: row_mask}"),
    "of_channels": (
        "{op: mul, input: channel, plus: 1}",
        "{op: add, input: flat, times: -0.5}",
        "{op: masked_fill, mask: channel_mask, constant: -2}",
    ),
    "of_one": (
        "{op: mul, input: number}",
        "{op: add, input: nothing}",
        "{op: mul, mask: nothing_mask}",
        "{op: masked_fill, mask: number_mask, constant: 0.5}",
    ),
    "of_all": ("{op: masked_fill, mask: full_mask, constant: 0}", "{op: tanh}", "{op: mul, mask: full_mask}"),
    # Sums of rows that wait for sums of columns, and the other way round.
    "around_batch_norm": (
        "{op: mul, input: row}",
        "{op: masked_fill, mask: full_mask, constant: 1}",
        BN,
        "{op: mul, input: row}",
        "{op: add, input: channel, times: 2, plus: 0.25}",
        "{op: mul, mask: row_mask}",
        "{op: maximum, input: number}",
    ),
    "around_layer_norm": (
        "{op: add, input: row}",
        "{op: mul, input: channel}",
        "{op: layer_norm, name: ln, affine: false}",
        "{op: mul, input: channel}",
        "{op: mul, mask: full_mask}",
        "{op: softmax}",
        "{op: mul, input: row, swap: true, detach: true}",
    ),
    # A value of each row beside an input that is one.
    "beside_rows": ("{op: sum, keepdim: true}", "{op: mul, input: row}", "{op: add, input: full}"),
    "of_the_input_itself": ("{op: mul, input: x}", "{op: sub, input: x, times: 3}"),
}
SIZES = ((1, 1), (1, 7), (5, 1), (3, 12), (33, 20), (41, 33))


def text(name: str, dtypes: str = "float32") -> str:
    chain = "\n".join(f"  - {step}" for step in CHAINS[name])
    used = [each for each in SHAPES if f"input: {each}" + "}" in chain or f"input: {each}," in chain]
    used += [each for each in SHAPES if f"mask: {each}" + "}" in chain or f"mask: {each}," in chain]
    inputs = "\n".join(f"  {each}: {SHAPES[each]}" for each in dict.fromkeys(used))
    arguments = "arguments: {features: {type: dim}}\n" if "name: " in chain else ""
    return SPEC.format(name=name, inputs=inputs, chain=chain, dtypes=dtypes, arguments=arguments)


def drawn(plan, rows: int, channels: int, dtype=None):
    """Each input in the shape that the spec gives it."""
    sizes = {"batch": rows, "features": channels}
    found = {}
    for each in plan.chain.inputs:
        values = torch.randn([sizes.get(dim, dim) for dim in each.shape], dtype=torch.float64)
        found[each.name] = values < 0.3 if each.name in plan.chain.masks else values.to(dtype or torch.float64)
    return found


def sized(plan, channels: int) -> list[int]:
    return [channels] * len(plan.spec.arguments)


@pytest.mark.parametrize("name", CHAINS)
def test_every_schedule_against_double_precision(name, emulation_cache, tmp_path):
    plan = write(name, text(name), tmp_path)
    module_class, mode = fusegen.load(name, tmp_path), plan.modes[-1]
    library = kernels_of(tmp_path / name, mode, emulation_cache, checked=False, optimised=False)
    checked = 0
    for rows, channels in SIZES:
        for training in (True, False):
            if plan.chain.batch_norms and training and rows == 1:
                continue
            torch.manual_seed(rows)
            module = module_class(*sized(plan, channels)).double()
            variant = plan.variants[0 if training else -1]
            tensors = {**drawn(plan, rows, channels), variant.result_gradient: torch.randn(rows, channels).double()}
            expected = tail_reference(plan, module, tensors, mode, training)
            for buffer in module.buffers():
                if training and not buffer.is_floating_point():
                    buffer.zero_()
            for seed, schedule in enumerate(schedules_of(variant)):
                tail = EmulatedTail(plan, variant, library, module)
                checked += agreement(tail, tensors, mode, schedule, seed, expected)
    assert checked


@pytest.mark.parametrize("name", ["of_all", "around_layer_norm", "of_rows", "of_channels"])
def test_16_bits_and_tensors_that_begin_anywhere(name, emulation_cache, tmp_path):
    """Masks have a byte for each element: their vectors are half as long as those of 16 bits, or a quarter."""
    plan = write(name, text(name, "bfloat16"), tmp_path, 1)
    mode = plan.modes[0]
    library, module_class = kernels_of(tmp_path / name, mode, emulation_cache), fusegen.load(name, tmp_path)
    for rows, channels in ((9, 24), (7, 31), (3, 264)):
        module = module_class(*sized(plan, channels))
        gradient = torch.randn(rows, channels).bfloat16()
        tensors = {**drawn(plan, rows, channels, torch.bfloat16), plan.variants[0].result_gradient: gradient}
        expected = tail_reference(plan, module, tensors, mode, True)
        for misalign in ("", "elements", "vectors"):
            for schedule in ("two_pass", "automatic"):
                tail = EmulatedTail(plan, plan.variants[0], library, module)
                found = tail.run(tensors, mode, schedule=schedule, misalign=misalign).values
                assert compare(found, expected, f"{rows}x{channels} {misalign} {schedule}")


def modules(name, spec, root, cache):
    plan = write(name, spec, root)
    package = emulate_package(root / name, cache=cache, checked=False)
    return plan, getattr(package, plan.spec.class_name)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory, emulation_cache):
    CHAINS["mixed"] = (
        "{op: mul, input: row}",
        "{op: add, input: channel}",
        "{op: add, input: flat}",
        "{op: gelu}",
        "{op: mul, input: number}",
        "{op: mul, input: row, plus: 1}",
        "{op: add, input: full}",
        "{op: mul, mask: row_mask}",
        "{op: masked_fill, mask: channel_mask, constant: 3}",
        "{op: masked_fill, mask: full_mask, constant: -1}",
    )
    root = tmp_path_factory.mktemp("mixed")
    return modules("mixed", text("mixed", "float32, bfloat16"), root, emulation_cache)


def results(call, inputs, grad):
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    y = call(*leaves)
    y.backward(grad.to(y.dtype))
    return [y.detach(), *(x.grad for x in leaves)]


def leading(plan, sizes, channels, dtype=torch.float32):
    """Inputs with these dimensions in place of the rows."""
    found = []
    for each in plan.chain.inputs:
        rows = sizes if each.shape[:1] == ("batch",) else [1] if each.shape[:1] == (1,) and len(each.shape) > 1 else []
        last = [channels if dim == "features" else dim for dim in each.shape[-1:]]
        values = torch.randn([*rows, *last])
        found.append(values < 0.3 if each.name in plan.chain.masks else values.to(dtype))
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sizes", [(5,), (2, 3), (2, 1, 3)], ids=str)
def test_a_module_gives_what_pytorch_does(mixed, sizes, dtype):
    plan, cls = mixed
    torch.manual_seed(1)
    module, inputs, grad = cls(), leading(plan, sizes, 11, dtype), torch.randn(*sizes, 11)
    assert module.fusegen_kernels(*inputs)
    found = results(module, inputs, grad)
    exact = [x.double() if x.is_floating_point() else x for x in inputs]
    expected = results(module.fusegen_reference, exact, grad.to(dtype).double())
    bound = 1e-5 if dtype == torch.float32 else 0.03
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert mine.shape == theirs.shape and mine.dtype == dtype
            torch.testing.assert_close(mine.double(), theirs, rtol=0, atol=bound * max(1, float(theirs.abs().max())))


def test_views_that_are_no_rows_of_memory(mixed):
    """Every second element, a transposed mask, and a value that is expanded already."""
    plan, cls = mixed
    module, inputs, grad = cls(), leading(plan, (4,), 6), torch.randn(4, 6)
    strided = [torch.stack((x, x.logical_not() if x.dtype == torch.bool else -x), -1)[..., 0] for x in inputs]
    strided[0] = inputs[0].T.contiguous().T
    for mine, theirs in zip(results(module, strided, grad), results(module, inputs, grad), strict=True):
        assert (mine is None and theirs is None) or torch.equal(mine, theirs)


def test_inputs_of_other_shapes_and_dtypes_run_in_pytorch(mixed):
    """What broadcasts in another way than the spec says, as PyTorch would compute it."""
    plan, cls = mixed
    names = [each.name for each in plan.chain.inputs]
    module, inputs = cls(), leading(plan, (4,), 6)
    for name, other, why in (
        ("full", torch.randn(1, 6), "full is torch.float32 [1, 6]"),
        ("row_mask", torch.ones(4, 1), "row_mask is torch.float32"),
        ("flat", torch.randn(4, 6), "flat is torch.float32 [4, 6]"),
        ("row", torch.randn(4, 1).bfloat16(), "there is no kernel for float32 with float32 with bfloat16"),
    ):
        given = [other if each == name else x for each, x in zip(names, inputs, strict=True)]
        use = module.fusegen_kernels(*given)
        assert not use and use.reason.startswith(why), use.reason
    for name, wrong in (("channel", torch.randn(1, 6)), ("number", torch.randn(()))):
        given = [wrong if each == name else x for each, x in zip(names, inputs, strict=True)]
        with pytest.raises(ValueError, match="must have one dimension"):
            module(*given)


def test_compiled_and_with_one_tensor_for_two_inputs(mixed):
    plan, cls = mixed
    torch.manual_seed(2)
    module, inputs, grad = cls(), leading(plan, (6,), 6), torch.randn(6, 6)
    compiled = torch.compile(copy.deepcopy(module), fullgraph=True, backend="aot_eager")
    for mine, theirs in zip(results(compiled, inputs, grad), results(module, inputs, grad), strict=True):
        assert (mine is None and theirs is None) or torch.equal(mine, theirs)
    full = [each.name for each in plan.chain.inputs].index("full")
    gradients = []
    for call, cast in ((module, torch.Tensor.float), (module.fusegen_reference, torch.Tensor.double)):
        given = [cast(x) if x.is_floating_point() else x for x in inputs]
        x = given[0].clone().requires_grad_()
        given[0] = given[full] = x
        call(*given).backward(cast(grad))
        gradients.append(x.grad.double())
    torch.testing.assert_close(*gradients, rtol=0, atol=2e-5)
