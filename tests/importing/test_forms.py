"""Ops as PyTorch's modules and functions, as methods, and spelled out."""

from __future__ import annotations

import functools

import pytest
import torch

from fusegen.errors import SpecError
from fusegen.importing.reading import forms
from fusegen.importing.reading.forms import FORMS, owned, recognised
from fusegen.importing.reading.read import Reader
from fusegen.importing.reading.values import Value, Values
from fusegen.importing.steps.chain import Steps
from fusegen.importing.traces.arguments import Arguments
from fusegen.importing.traces.trace import trace
from tests.importing.modules import ROWS, WIDTH, Source, chain, imported

pytestmark = pytest.mark.torch
_NORM = "y.mean(-1, keepdim=True)"
_VAR = "y.var(-1, keepdim=True, unbiased=False)"
_LAYER_NORM = [{"op": "layer_norm", "name": "norm", "affine": False}]
_RMS = [{"op": "rms_norm", "name": "norm", "eps": 1e-6, "affine": False}]

SPELLED = {
    "y * torch.sigmoid(y)": [{"op": "silu"}],
    "torch.sigmoid(y) * y": [{"op": "silu"}],
    "y / (1 + torch.exp(-y))": [{"op": "silu"}],
    "y * torch.tanh(F.softplus(y))": [{"op": "mish"}],
    "y * torch.tanh(torch.log1p(torch.exp(y)))": [{"op": "mish"}],
    "y * torch.tanh(torch.log(1 + y.exp()))": [{"op": "mish"}],
    "y * F.hardsigmoid(y)": [{"op": "hardswish"}],
    "y * torch.clamp((y + 3) / 6, 0, 1)": [{"op": "hardswish"}],
    "y * (y + 3).clamp(0, 6) / 6": [{"op": "hardswish"}],
    "y * F.relu6(y + 3) / 6": [{"op": "hardswish"}],
    "y * (F.relu6(y + 3) / 6)": [{"op": "hardswish"}],
    "torch.clamp((3 + y) / 6, 0, 1)": [{"op": "hardsigmoid"}],
    "torch.clamp(y / 6 + 0.5, 0, 1)": [{"op": "hardsigmoid"}],
    "torch.clamp(y + 3, 0, 6) / 6": [{"op": "hardsigmoid"}],
    "F.hardtanh(y + 3, 0, 6) / 6": [{"op": "hardsigmoid"}],
    "0.5 * y * (1 + torch.erf(y / 2**0.5))": [{"op": "gelu"}],
    "y * 0.5 * (1.0 + torch.erf(y * 0.7071067811865475))": [{"op": "gelu"}],
    "y / 2 * (torch.erf(y / 2**0.5) + 1)": [{"op": "gelu"}],
    "0.5 * y * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (y + 0.044715 * y**3)))": [
        {"op": "gelu", "approximate": "tanh"}
    ],
    "0.5 * y * (1 + torch.tanh(0.7978845608 * (y + 0.044715 * y * y * y)))": [{"op": "gelu", "approximate": "tanh"}],
    "0.5 * y * (1 + torch.tanh(y * 0.7978845608 * (1 + 0.044715 * y * y)))": [{"op": "gelu", "approximate": "tanh"}],
    "0.5 * y * (1 + torch.tanh(y * 0.7978845608 * (1 + 0.044715 * y**2)))": [{"op": "gelu", "approximate": "tanh"}],
    "1 / (1 + torch.exp(-y))": [{"op": "sigmoid"}],
    "y / (1 + y.abs())": [{"op": "softsign"}],
    "F.softsign(y)": [{"op": "softsign"}],
    "F.normalize(y, dim=-1)": [{"op": "normalize"}],
    "F.normalize(y, p=1, dim=1, eps=1e-3)": [{"op": "normalize", "p": 1, "dim": 1, "eps": 1e-3}],
    "y / y.norm(dim=1, keepdim=True).clamp_min(1e-12)": [{"op": "normalize", "dim": 1}],
    f"(y - {_NORM}) / torch.sqrt({_VAR} + 1e-5)": _LAYER_NORM,
    f"(y - {_NORM}) * torch.rsqrt({_VAR} + 1e-5)": _LAYER_NORM,
    f"(y - {_NORM}) / (((y - {_NORM}) ** 2).mean(-1, keepdim=True) + 1e-5).sqrt()": _LAYER_NORM,
    f"(y - {_NORM}) / torch.sqrt(y.var(1, correction=0).unsqueeze(1) + 1e-5)": _LAYER_NORM,
    f"(y - {_NORM}) / ({_VAR} + 1e-5) ** 0.5": _LAYER_NORM,
    "y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)": _RMS,
    "y / torch.sqrt(torch.mean(y * y, dim=-1, keepdim=True) + 1e-6)": _RMS,
    "y * (y.square().mean(-1, keepdim=True) + 1e-6) ** -0.5": _RMS,
    "0.5 * y * (1 + torch.tanh(0.79788456 * y * (1 + 0.044715 * y * y)))": [{"op": "gelu", "approximate": "tanh"}],
}
# As the catalogue has them.
CALLED = {
    "torch.relu(y)": [{"op": "relu"}],
    "y.relu_()": [{"op": "relu"}],
    "F.gelu(y)": [{"op": "gelu"}],
    'F.gelu(y, approximate="tanh")': [{"op": "gelu", "approximate": "tanh"}],
    "F.silu(y)": [{"op": "silu"}],
    "F.mish(y)": [{"op": "mish"}],
    "F.hardswish(y)": [{"op": "hardswish"}],
    "F.hardsigmoid(y)": [{"op": "hardsigmoid"}],
    "F.logsigmoid(y)": [{"op": "logsigmoid"}],
    "F.relu6(y)": [{"op": "relu6"}],
    "F.selu(y)": [{"op": "selu"}],
    "F.elu(y, 0.5)": [{"op": "elu", "alpha": 0.5}],
    "F.celu(y, alpha=0.5)": [{"op": "celu", "alpha": 0.5}],
    "F.leaky_relu(y, 0.2)": [{"op": "leaky_relu", "negative_slope": 0.2}],
    "F.softplus(y, beta=2)": [{"op": "softplus", "beta": 2}],
    "F.hardtanh(y, -2.0, 2.0)": [{"op": "hardtanh", "min_val": -2.0, "max_val": 2.0}],
    "torch.clamp(y, min=0)": [{"op": "clamp", "min": 0}],
    "y.clamp_max(0.5)": [{"op": "clamp", "max": 0.5}],
    "y.abs().add(1).log()": [{"op": "abs"}, {"op": "add", "constant": 1}, {"op": "log"}],
    "-y.exp()": [{"op": "exp"}, {"op": "neg"}],
    "y**2": [{"op": "square"}],
    "y**3": [{"op": "pow", "exponent": 3}],
    "(y.abs() + 1).rsqrt()": [{"op": "abs"}, {"op": "add", "constant": 1}, {"op": "rsqrt"}],
    "1 - y": [{"op": "sub", "constant": 1, "swap": True}],
    "2 / (y.abs() + 1)": [
        {"op": "abs"},
        {"op": "add", "constant": 1},
        {"op": "div", "constant": 2, "swap": True},
    ],
    "torch.sub(y, 2, alpha=3)": [{"op": "sub", "constant": 6}],
    "torch.minimum(y, y.new_full((), 0.5))": [{"op": "minimum", "constant": 0.5}],
    "torch.min(y, torch.tensor(0.1))": [{"op": "minimum", "constant": 0.1}],
    "torch.max(y, torch.zeros_like(y))": [{"op": "maximum", "constant": 0}],
    "torch.full_like(y, 0.3) - y.exp()": [{"op": "exp"}, {"op": "sub", "constant": 0.3, "swap": True}],
    "torch.add(y, y.tanh(), alpha=2)": [
        {"op": "tanh"},
        {"op": "mul", "constant": 2},
        {"op": "add", "value": "y"},
    ],
    "F.instance_norm(y.unsqueeze(1), eps=1e-3).squeeze(1)": [{"op": "instance_norm", "name": "norm", "eps": 1e-3}],
    "F.dropout(F.dropout(y, 0.3, self.training), p=0.0, training=self.training)": [{"op": "dropout", "p": 0.3}],
    "torch.special.expm1(y.sin().atan())": [{"op": "sin"}, {"op": "atan"}, {"op": "expm1"}],
    "F.threshold(F.softshrink(y, 0.25), 0.5, -1)": [
        {"op": "softshrink", "lambd": 0.25},
        {"op": "threshold", "threshold": 0.5, "value": -1},
    ],
    "torch.atan2(y.new_full((), 2.0), y)": [{"op": "atan2", "constant": 2.0, "swap": True}],
    "y / y.std(-1, keepdim=True)": [{"op": "std", "keepdim": True}, {"op": "div", "value": "y", "swap": True}],
    "y - y.var(1, unbiased=False, keepdim=True)": [
        {"op": "var", "keepdim": True, "dim": 1, "correction": 0},
        {"op": "sub", "value": "y", "swap": True},
    ],
    "y / y.norm(dim=1, keepdim=True).clamp(1e-12, 1e3)": [
        {"op": "norm", "keepdim": True, "dim": 1},
        {"op": "clamp", "min": 1e-12, "max": 1e3},
        {"op": "div", "value": "y", "swap": True},
    ],
    "y * y.mean(-1, keepdim=True).expand_as(y)": [{"op": "mean", "keepdim": True}, {"op": "mul", "value": "y"}],
    "y * y.norm(1, -1, keepdim=True)": [{"op": "norm", "keepdim": True, "p": 1}, {"op": "mul", "value": "y"}],
    "F.softmax(y, dim=-1)": [{"op": "softmax"}],
    "torch.log_softmax(y, 1)": [{"op": "log_softmax", "dim": 1}],
    "F.layer_norm(y, (24,), eps=1e-3)": [{"op": "layer_norm", "name": "norm", "eps": 1e-3, "affine": False}],
    "F.rms_norm(y, (24,), eps=1e-3)": [{"op": "rms_norm", "name": "norm", "eps": 1e-3, "affine": False}],
    "F.group_norm(y, 4)": [{"op": "group_norm", "name": "norm", "num_groups": 4, "affine": False}],
    "F.group_norm(y.unsqueeze(-1), 4).squeeze(-1)": [
        {"op": "group_norm", "name": "norm", "num_groups": 4, "affine": False}
    ],
    "y.unsqueeze(1).tanh().view(x.size(0), -1).contiguous()": [{"op": "tanh"}],
    "F.dropout(y, 0.5, training=False).reshape(-1, y.size(1)).clone().tanh()": [{"op": "tanh"}],
    **{
        f"y.{op}(1, keepdim=True) - y": [
            {"op": op, "keepdim": True, "dim": 1},
            {"op": "sub", "value": "y"},
        ]
        for op in ("sum", "mean", "amax", "amin", "logsumexp")
    },
    **{
        f"y - y.{op}(-1).values.unsqueeze(-1)": [
            {"op": op, "keepdim": True},
            {"op": "sub", "value": "y", "swap": True},
        ]
        for op in ("max", "min")
    },
}


@pytest.mark.parametrize("text", [*SPELLED, *CALLED])
def test_a_form_is_its_op(text: str) -> None:
    found = chain(imported(Source("", f"return {text}")))
    assert found == {**SPELLED, **CALLED}[text]


@pytest.mark.parametrize("index", range(len(FORMS)), ids=[form.pattern for form in FORMS])
def test_each_form_is_needed(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its line of the table something that is spelled out is no longer recognised."""
    kept = tuple(form for form in FORMS if form is not FORMS[index])
    names = {form.op for form in FORMS if form is FORMS[index]}
    monkeypatch.setattr(forms, "FORMS", kept)
    monkeypatch.setattr(forms, "SPELLINGS", {k: v for k, v in forms.SPELLINGS.items() if k not in names})
    wanted = [text for text, steps in SPELLED.items() if steps[0]["op"] in (*names, *_built_of(names))]
    assert any(_differs(text) for text in wanted)


def _differs(text: str) -> bool:
    result, values = _as_it_is(text)
    try:
        found = Steps([owned(recognised(result, values), values)], ["x"], [], False).found
    except SpecError:
        return True
    return [draft.data["op"] for draft in found[1:]] != [step["op"] for step in SPELLED[text]]


@functools.cache
def _as_it_is(text: str) -> tuple[Value, Values]:
    """What is computed, before any form is looked for."""
    module, inputs, values = Source("", f"return {text}").module(), [torch.randn(ROWS, WIDTH)], Values()
    return Reader(trace(module, inputs, training=True), Arguments(module, inputs, None), values).results()[0], values


def _built_of(names: set[str]) -> tuple[str, ...]:
    return ("hardswish",) if "hardsigmoid" in names else ()


@pytest.mark.parametrize(
    "text",
    [
        "y * torch.sigmoid(1.5 * y)",
        "y * torch.clamp((y + 3) / 6, 0, 2)",
        "y * torch.clamp((y + 2) / 6, 0, 1)",
        "0.5 * y * (1 + torch.tanh(0.797 * (y + 0.044715 * y**3)))",
        f"(y - {_NORM}) / torch.sqrt(y.square().mean(-1, keepdim=True) + 1e-5)",
        "y * torch.tanh(F.softplus(y, beta=2))",
        "y / (2 + y.abs())",
        "y / y.norm(dim=-1, keepdim=True).clamp(1e-12, 5)",
        "y / y.tanh().norm(dim=-1, keepdim=True).clamp_min(1e-12)",
        f"(y - {_NORM}) / torch.sqrt(y.var(-1, keepdim=True) + 1e-5)",
    ],
)
def test_what_is_almost_a_form_is_not_that_op(text: str) -> None:
    try:
        found = chain(imported(Source("", f"return {text}")))
    except SpecError as error:
        assert [each.code for each in error.diagnostics] == ["FG707"]  # as steps it would branch
        return
    assert len(found) > 1
    assert not {"silu", "hardswish", "gelu", "layer_norm", "mish", "softsign"} & {step["op"] for step in found}


def test_an_attribute_is_not_taken_for_a_constant_of_a_form() -> None:
    """It may be changed later."""
    source = Source("self.three = 3.0", "return torch.clamp(y + self.three, 0, 6) / 6")
    assert chain(imported(source)) == [
        {"op": "add", "name": "three", "constant": 3.0},
        {"op": "clamp", "min": 0, "max": 6},
        {"op": "div", "constant": 6},
    ]


@pytest.mark.parametrize(
    ("made", "line", "steps"),
    [
        ("self.n = nn.LayerNorm(m, eps=1e-3)", "self.n(y)", [{"op": "layer_norm", "name": "n", "eps": 1e-3}]),
        ("self.n = nn.LayerNorm(m, bias=False)", "self.n(y)", [{"op": "layer_norm", "name": "n", "bias": False}]),
        ("self.n = nn.RMSNorm(m)", "self.n(y)", [{"op": "rms_norm", "name": "n", "eps": None}]),
        ("self.n = nn.GroupNorm(4, m)", "self.n(y)", [{"op": "group_norm", "name": "n", "num_groups": 4}]),
        ("self.n = nn.BatchNorm1d(m)", "self.n(y)", [{"op": "batch_norm", "name": "n"}]),
        (
            "self.n = nn.BatchNorm1d(m, momentum=None, track_running_stats=False, affine=False)",
            "self.n(y)",
            [{"op": "batch_norm", "name": "n", "affine": False, "momentum": None, "track_running_stats": False}],
        ),
        (
            "self.n = nn.BatchNorm1d(m, momentum=None)",
            "self.n(y)",
            [{"op": "batch_norm", "name": "n", "momentum": None}],
        ),
        ("self.n = nn.PReLU(m)", "self.n(y)", [{"op": "prelu", "name": "n", "num_parameters": "m"}]),
        ("self.n = nn.PReLU(init=0.1)", "self.n(y)", [{"op": "prelu", "name": "n", "init": 0.1}]),
        ("self.n = nn.ReLU(inplace=True)", "self.n(y)", [{"op": "relu"}]),
        ("self.n = nn.LeakyReLU(0.2)", "self.n(y)", [{"op": "leaky_relu", "negative_slope": 0.2}]),
        ("self.n = nn.Softmax(dim=1)", "self.n(y)", [{"op": "softmax", "dim": 1}]),
        ("self.n = nn.Dropout(0.0)", "self.n(y).tanh()", [{"op": "tanh"}]),
        ("self.n = nn.Identity()", "self.n(y).tanh()", [{"op": "tanh"}]),
    ],
)
def test_modules(made: str, line: str, steps: list[dict]) -> None:
    assert chain(imported(Source(made, f"return {line}"))) == steps


WEIGHTED = {
    f"self.w * (y - {_NORM}) / torch.sqrt({_VAR} + 1e-3)": "layer_norm",
    f"(y - {_NORM}) * self.w * ({_VAR} + 1e-3) ** -0.5": "layer_norm",
    "self.w * y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-3)": "rms_norm",
    "self.w * y / (y.pow(2).mean(-1, keepdim=True) + 1e-3).sqrt()": "rms_norm",
}


@pytest.mark.parametrize("line", WEIGHTED)
def test_a_norm_whose_weight_is_before_the_division(line: str) -> None:
    text = imported(Source("self.w = nn.Parameter(torch.ones(m))", f"return {line} - 1"))
    assert chain(text) == [
        {"op": WEIGHTED[line], "name": "norm", "eps": 1e-3, "affine": False},
        {"op": "mul", "parameter": "w", "shape": ["m"], "init": "ones"},
        {"op": "sub", "constant": 1},
    ]


def test_a_weight_beside_another_reduction_is_no_norms() -> None:
    for line in ("self.w * y.tanh() * torch.rsqrt({} + 1e-3)", "self.w * y / ({} * 24 + 1e-3).sqrt()"):
        source = Source(
            "self.w = nn.Parameter(torch.ones(m))", f"return {line.format('y.pow(2).mean(-1, keepdim=True)')}"
        )
        assert "norm" not in {step["op"].rpartition("_")[2] for step in chain(imported(source))}


def test_the_reciprocal_of_a_parameter_is_divided_by() -> None:
    """As the periodic activation of a vocoder has it."""
    text = imported(Source("self.w = nn.Parameter(torch.ones(m))", "return y.sin() * (self.w + 0.5).reciprocal()"))
    assert chain(text)[-1] == {
        **{"op": "div", "parameter": "w", "shape": ["m"], "init": "ones"},
        "plus": 0.5,
    }
