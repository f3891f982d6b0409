"""Parts of the channels on the emulator: where each kernel finds and leaves them, and their gradients."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

import fusegen  # noqa: E402
from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.ops.parts import STEPS  # noqa: E402
from fusegen.verify.subjects.emulated import EmulatedTail, tail_reference  # noqa: E402
from tests.emulate.building import forced_shapes, kernels_of, write  # noqa: E402
from tests.emulate.test_chains import agreement, compare, count_batch, schedules_of  # noqa: E402

pytestmark = pytest.mark.torch

_SPEC = """\
fusegen: 1
name: {name}
about: A chain of the tests
dims: {{batch: 32, features: 64, hidden: 48}}
arguments: {{features: {{type: dim}}, hidden: {{type: dim}}}}
inputs: {{x: [batch, features]}}
dtypes: {dtypes}
chain:
{chain}
"""
_CHUNK = "{op: chunk, parts: [a, gate], running: gate}"


@dataclass(frozen=True)
class Divided:
    """A chain that begins with a linear layer, or without one with what divides the input. count: of parts."""

    steps: tuple[str, ...]
    count: int = 2
    options: str = ""
    linear: bool = True
    modes: tuple[str, ...] = ("float64",)

    def spec(self, name: str) -> str:
        width = f"{self.count} * hidden"
        linear = f"{{op: linear, name: fc, out_features: {width}{self.options}}}"
        narrow = [mode for mode in self.modes if mode != "float64"]
        text = _SPEC.format(
            name=name,
            dtypes=f"[{', '.join(narrow or ['float32'])}]",
            chain="\n".join(f"  - {step}" for step in (*([linear] if self.linear else []), *self.steps)),
        )
        if not self.linear:
            text = text.replace("[batch, features]", f"[batch, {width}]").replace("features: 64, ", "")
            text = text.replace("features: {type: dim}, ", "")
            if "name:" not in " ".join(self.steps):
                text = text.replace("hidden: {type: dim}", "")
        return text


CASES = {
    "chunk": Divided((_CHUNK, "{op: gelu}", "{op: mul, value: a}"), modes=("float64", "bfloat16", "float16")),
    # The second is used twice, the third gets no gradient, the last nothing uses.
    "several": Divided(
        (
            "{op: chunk, parts: [a, b, c, d]}",
            *("{op: silu}", "{op: mul, value: b}", "{op: mul, value: c, detach: true}", "{op: add, value: b}"),
        ),
        count=4,
        options=", bias: false",
    ),
    "swiglu": Divided(("{op: swiglu}", "{op: batch_norm, name: bn}", "{op: tanh}"), modes=("float64", "bfloat16")),
    "geglu": Divided(
        ("{op: geglu, gate: first, approximate: tanh}", "{op: layer_norm, name: ln}"),
        options=", bias: false",
        modes=("float64", "float16"),
    ),
    "of_groups": Divided((_CHUNK, "{op: group_norm, name: gn, num_groups: 2}", "{op: mul, value: a}")),
    "glu": Divided(("{op: glu}",), linear=False),
    "reglu": Divided(("{op: reglu}", "{op: softmax}"), linear=False),
}
# Parts that begin with a vector, and that do not; shorter than a vector; one channel; one row.
SIZES = ((5, 16), (33, 20), (7, 14), (3, 6), (9, 1), (1, 24))


def prepared(name, mode_name, cache, directory):
    plan = write(name, CASES[name].spec(name), directory)
    mode = next(each for each in plan.modes if each.name == mode_name)
    library = kernels_of(directory / name, mode, cache, checked=False)
    return plan, mode, library, fusegen.load(name, directory)


def drawn(plan, variant, mode, rows: int, channels: int) -> dict[str, torch.Tensor]:
    dtypes = [getattr(torch, mode.roles[role]) for role in ("activation", "output")]
    source = torch.randn(rows, plan.chain.number_of_parts * channels).to(dtypes[0])
    return {plan.chain.source.name: source, variant.result_gradient: torch.randn(rows, channels).to(dtypes[1])}


def built(cls, plan, mode, channels: int):
    given = {"features": 8, "hidden": channels}
    module = cls(*(given[name] for name in plan.spec.arguments), dtype=getattr(torch, mode.roles["parameter"]))
    for parameter in module.parameters():
        parameter.data.uniform_(0.5, 1.5)
    return module


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name, case in CASES.items() for mode in case.modes])
def test_every_schedule_against_double_precision(name, mode, emulation_cache, tmp_path):
    plan, mode, library, cls = prepared(name, mode, emulation_cache, tmp_path)
    statistics = any("norm" in step for step in CASES[name].steps)
    checked = 0
    for rows, channels in SIZES if mode.name == "float64" else SIZES[:3]:
        if statistics and (rows == 1 or channels % 2):
            rows, channels = rows + 1, channels + channels % 2
        for training in (True, False)[: len(plan.variants)]:
            torch.manual_seed(rows)
            module, variant = built(cls, plan, mode, channels), plan.variants[0 if training else -1]
            tensors = drawn(plan, variant, mode, rows, channels)
            expected = tail_reference(plan, module, tensors, mode, training)
            count_batch(plan, module, training)
            for seed, schedule in enumerate(schedules_of(variant)):
                tail = EmulatedTail(plan, variant, library, module)
                checked += agreement(tail, tensors, mode, schedule, seed, expected)
            for misalign in ("elements", "vectors"):
                found = EmulatedTail(plan, variant, library, module).run(tensors, mode, misalign=misalign)
                checked += compare(found.values, expected, f"{name} {rows}x{channels} misaligned {misalign}")
    assert checked


def test_long_rows_without_vectors(emulation_cache, tmp_path):
    """Of 16 bits: longer than a block's share, of parts that begin within a vector, and within a word."""
    plan, mode, library, cls = prepared("geglu", "float16", emulation_cache, tmp_path)
    variant, checked = plan.variants[0], 0
    for rows, channels in ((3, 1027), (2, 2050), (2, 5121)):
        module, tensors = built(cls, plan, mode, channels), drawn(plan, variant, mode, rows, channels)
        expected = tail_reference(plan, module, tensors, mode, True)
        for schedule in ("automatic", "persistent", "two_pass"):
            found = EmulatedTail(plan, variant, library, module).run(tensors, mode, shapes=forced_shapes(schedule))
            checked += compare(found.values, expected, f"{rows}x{channels} {schedule}")
    assert checked


def test_what_nothing_differentiates_is_zero(emulation_cache, tmp_path):
    plan, mode, library, cls = prepared("several", "float64", emulation_cache, tmp_path)
    variant = plan.variants[0]
    tensors = drawn(plan, variant, mode, 6, 8)
    values = EmulatedTail(plan, variant, library, built(cls, plan, mode, 8)).run(tensors, mode).values
    first, second, detached, unused = values["grad_fc_product"].chunk(4, dim=1)
    assert first.abs().max() > 0 and second.abs().max() > 0
    assert torch.equal(detached, torch.zeros(6, 8).double()) and torch.equal(unused, detached)


@pytest.fixture(scope="module")
def packages(emulation_cache, tmp_path_factory):
    """Of a linear layer and of a convolution, with their kernels."""
    directory = tmp_path_factory.mktemp("packages")
    convolution = Divided(
        ("{op: conv2d, name: conv, out_channels: 2 * hidden, kernel_size: 3}", "{op: glu}"), linear=False
    )
    text = _SPEC.format(name="conv_glu", dtypes="[float32]", chain="\n".join(f"  - {s}" for s in convolution.steps))
    text = text.replace("[batch, features]", "[batch, features, h, w]").replace("batch: 32", "batch: 32, h: 8, w: 8")
    write("conv_glu", text, directory)
    write("lin_geglu", Divided((_CHUNK, "{op: gelu}", "{op: mul, value: a}")).spec("lin_geglu"), directory)
    return {
        name: emulate_package(directory / name, cache=emulation_cache, checked=False)
        for name in ("conv_glu", "lin_geglu")
    }


@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels_last"])
def test_a_convolution_is_divided_along_its_channels(packages, last):
    torch.manual_seed(0)
    module = packages["conv_glu"].ConvGlu(3, 5)
    x = torch.randn(2, 3, 6, 7)
    x = (x.to(memory_format=torch.channels_last) if last else x).requires_grad_()
    assert module.fusegen_kernels(x).used
    leaves = [x, *module.parameters()]
    expected = F.glu(module.conv(x), dim=1)
    grad = torch.randn_like(expected)
    result = module(x)
    assert torch.allclose(result, expected, atol=1e-6) and result.stride() == expected.stride()
    wanted = torch.autograd.grad(expected, leaves, grad)
    assert all(map(lambda a, b: torch.allclose(a, b, atol=1e-4), torch.autograd.grad(result, leaves, grad), wanted))


def test_a_linear_layer_and_its_gradients(packages):
    torch.manual_seed(0)
    module = packages["lin_geglu"].LinGeglu(6, 9)
    x = torch.randn(2, 3, 6, requires_grad=True)
    assert module.fusegen_kernels(x).used
    leaves = [x, module.fc.weight, module.fc.bias]
    value, gate = F.linear(*leaves).chunk(2, dim=-1)
    expected = value * F.gelu(gate)
    grad = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, leaves, grad)
    result = module(x)
    assert result.shape == (2, 3, 9) and torch.allclose(result, expected, atol=1e-6)
    assert all(map(lambda a, b: torch.allclose(a, b, atol=1e-5), torch.autograd.grad(result, leaves, grad), wanted))


def test_channels_without_equal_parts_are_pytorchs(packages):
    module = packages["lin_geglu"].LinGeglu(6, 9)
    module.fc = torch.nn.Linear(6, 3)  # chunks of two and one
    use = module.fusegen_kernels(torch.randn(4, 6))
    assert not use.used and "no equal parts" in use.reason
    assert module(torch.randn(4, 6)).shape == (4, 2)


def test_what_tracers_are_told(packages):
    operator = packages["lin_geglu"]._fused
    with torch.device("meta"):
        given = torch.empty(4, 6), torch.empty(18, 6), torch.empty(18)
        y, product = operator.forward(*given, 0, 0, None, None)
        assert y.shape == (4, 9) and product.shape == (4, 18)
        gradients = operator.backward(y, *given[:2], product, given[2], 0, 0, None, None, [True] * 3)
        assert [each.shape for each in gradients] == [each.shape for each in given]


def test_every_op_is_here():
    steps = " ".join(step for case in CASES.values() for step in case.steps)
    assert all(f"op: {op}" in steps for step in STEPS for op in step.ops())
