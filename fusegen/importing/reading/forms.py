"""Ops of the catalogue as people spell them out: a line of a table for each form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fusegen.importing.reading.dropouts import drop_path
from fusegen.importing.reading.pattern import match, parse, product
from fusegen.importing.reading.values import Number, Value, Values, replaced, walk


@dataclass(frozen=True)
class Form:
    """An op of x. keys: those that the form has besides the numbers that its pattern names."""

    op: str
    pattern: str
    keys: Mapping[str, Any] = field(default_factory=dict)


_TANH = {"approximate": "tanh"}
_BARE = {"affine": False}

# What comes first is looked for first.
FORMS = (
    Form("silu", "x * sigmoid(x)"),
    Form("silu", "x / (1 + exp(0 - x))"),
    Form("mish", "x * tanh(softplus(x))"),
    Form("mish", "x * tanh(log1p(exp(x)))"),
    Form("mish", "x * tanh(log(1 + exp(x)))"),
    Form("hardswish", "x * hardsigmoid(x)"),
    Form("hardswish", "x * clamp(x + 3, 0, 6) / 6"),
    Form("hardswish", "x * relu6(x + 3) / 6"),
    Form("hardsigmoid", "clamp((x + 3) / 6, 0, 1)"),
    Form("hardsigmoid", "clamp(x / 6 + 0.5, 0, 1)"),
    Form("hardsigmoid", "clamp(x + 3, 0, 6) / 6"),
    Form("hardsigmoid", "relu6(x + 3) / 6"),
    Form("gelu", "0.5 * x * (1 + erf(x / 1.4142135623730951))"),
    Form("gelu", "0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * pow(x, 3))))", _TANH),
    Form("gelu", "0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))", _TANH),
    Form("gelu", "0.5 * x * (1 + tanh(0.7978845608028654 * x * (1 + 0.044715 * x * x)))", _TANH),
    Form("gelu", "0.5 * x * (1 + tanh(0.7978845608028654 * x * (1 + 0.044715 * square(x))))", _TANH),
    Form("sigmoid", "1 / (1 + exp(0 - x))"),
    Form("softsign", "x / (1 + abs(x))"),
    Form("layer_norm", "(x - mean(x)) / sqrt(var(x, 0) + eps)", _BARE),
    Form("layer_norm", "(x - mean(x)) * rsqrt(var(x, 0) + eps)", _BARE),
    Form("rms_norm", "x / sqrt(mean(square(x)) + eps)", _BARE),
    Form("rms_norm", "x * rsqrt(mean(square(x)) + eps)", _BARE),
)

# Other ways to write an op within these, of y.
SPELLINGS = {
    "square": ("y * y",),
    "sqrt": ("pow(y, 0.5)",),
    "rsqrt": ("pow(y, -0.5)",),
    "var": ("mean(square(y - mean(y)))",),
    "hardsigmoid": tuple(form.pattern.replace("x", "y") for form in FORMS if form.op == "hardsigmoid"),
}


def recognised(result: Value, values: Values) -> Value:
    """The result with every form in it replaced by the op that it is."""
    done: dict[int, Value] = {}
    for value in walk(result):
        op, operands, keys = (
            drop_path(value)
            or _form(value)
            or _normalized(value)
            or _quotient(value)
            or _weighted(value, values)
            or (value.op, value.operands, value.keys)
        )
        for each in operands:  # a form that is only now one value
            if isinstance(each, Value) and id(each) not in done:
                inner = tuple(done[id(part)] for part in each.values)
                done[id(each)] = values.again(each, inner)
        operands = tuple(done[id(each)] if isinstance(each, Value) else each for each in operands)
        done[id(value)] = values.make(op, operands, keys, value.name, value.layout, value.place)
    return done[id(result)]


Parts = tuple[str, tuple[Value | Number, ...], Mapping[str, Any]]
"""An op, its operands and its keys."""


def _form(value: Value) -> Parts | None:
    """The op that a value spells out."""
    for form in FORMS if not value.is_leaf else ():
        for bound in match(parse(form.pattern), value, {}, SPELLINGS):
            numbers = {name: each for name, each in bound.items() if isinstance(each, Number)}
            x = bound["x"]
            if isinstance(x, Value) and x.layout == value.layout:
                return form.op, (x,), {**form.keys, **numbers}
    return None


def _normalized(value: Value) -> Parts | None:
    """F.normalize: a value over its norm, which is at least eps."""
    x, least = value.operands if value.op == "div" else (None, None)
    if not isinstance(x, Value) or not isinstance(least, Value) or least.op != "clamp" or set(least.keys) != {"min"}:
        return None
    norm = least.operands[0]
    if not isinstance(norm, Value) or norm.op != "norm" or norm.operands[0] is not x or x.layout != value.layout:
        return None
    if len(norm.reduced) > 1:
        return None
    keys = {key: each for key, each in norm.keys.items() if key != "keepdim"}
    return "normalize", (x,), {**keys, "eps": least.keys["min"]}


def _quotient(value: Value) -> Parts | None:
    """A number over a value, which PyTorch computes as the value's reciprocal times the number; and a value times the
    reciprocal of what is made of parameters alone."""
    for one, other in (value.operands, value.operands[::-1]) if value.op == "mul" else ():
        if not isinstance(one, Value) or one.op != "reciprocal":
            continue
        if isinstance(other, Number) or all(each.op == "parameter" for each in walk(one) if each.is_leaf):
            return "div", (other, one.operands[0]), {}
    return None


def _weighted(value: Value, values: Values) -> Parts | None:
    """A norm whose weight is multiplied with before the division: `w * (x - mean) / sqrt(var + eps)`."""
    factors = product(value)
    for index, (weight, sign) in enumerate(factors):
        rest = [*factors[:index], *factors[index + 1 :]]
        if not isinstance(weight, Value) or weight.op != "parameter" or sign < 0 or not rest or rest[0][1] < 0:
            continue
        norm, *others = rest
        whole = norm[0]
        for other, power in others:
            whole = values.make("mul" if power > 0 else "div", (whole, other), layout=value.layout, place=value.place)
        found = _form(whole) if isinstance(whole, Value) and others else None
        if found is not None and found[0].endswith("_norm"):
            op, operands, keys = found
            return "mul", (values.make(op, operands, keys, layout=value.layout, place=value.place), weight), {}
    return None


def owned(result: Value, values: Values) -> Value:
    """Norms without weights that are multiplied by the weight of a submodule, and moved by its bias, as that norm.

    The state_dict has its weight under that name, which no parameter of the chain could have.
    """
    (found,) = replaced([result], lambda value, operands: _with_weight(values.again(value, operands), values))
    return found


def _with_weight(value: Value, values: Values) -> Value:
    parts = list(value.operands)
    if value.op not in ("mul", "add") or len(parts) != 2 or not all(isinstance(each, Value) for each in parts):
        return value
    for norm, tensor in (parts, parts[::-1]):
        assert isinstance(norm, Value) and isinstance(tensor, Value)
        path, _, key = tensor.name.rpartition(".")
        if tensor.op != "parameter" or not path or norm.op not in ("layer_norm", "group_norm", "rms_norm"):
            continue
        if value.op == "mul" and key == "weight" and not norm.name and norm.keys["affine"] is False:
            keys = {**norm.keys, "affine": True, **({} if norm.op == "rms_norm" else {"bias": False})}
            return values.make(norm.op, norm.operands, keys, path, value.layout, value.place)
        if value.op == "add" and key == "bias" and norm.name == path and norm.keys.get("bias") is False:
            keys = {each: what for each, what in norm.keys.items() if each != "bias"}
            return values.make(norm.op, norm.operands, keys, path, value.layout, value.place)
    return value
