"""Chains beside the committed ones: hand-picked for what is unusual about them, and random ones from a seed."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

_SPEC = """\
fusegen: 1
name: {name}
about: A chain of the tests
dims: {{{dims}}}
arguments: {{{arguments}}}
inputs:
{inputs}
dtypes: [float32]
chain:
{chain}
"""
_DIMS = {"batch": 32, "features": 64, "in_features": 48}
_ARGUMENTS = {
    "features": "{type: dim}",
    "in_features": "{type: dim}",
    "groups_of_gn": "{type: int, typical: 4}",
    "scale_by": "{type: float, default: 1.25}",
}


@dataclass(frozen=True)
class Other:
    """A chain to be.

    inputs: further ones beside x. rows, channels: numbers where the spec is to rely on them. square: x is as wide as
    the linear layer's output, so that it can be added behind it. parts: into how many the first step divides what it
    is given.
    """

    steps: tuple[str, ...]
    linear: bool = True
    bias: bool = True
    inputs: tuple[str, ...] = ()
    rows: int | None = None
    channels: int | None = None
    square: bool = True
    parts: int = 1

    def spec(self, name: str) -> str:
        rows, width = self.rows or "batch", self.channels or "features"
        source = width if self.square or not self.linear else "in_features"
        chain, divided = list(self.steps), f"{self.parts} * {width}" if self.parts > 1 else width
        if self.linear:
            options = "" if self.bias else ", bias: false"
            chain.insert(0, f"{{op: linear, name: fc, out_features: {divided}{options}}}")
        else:
            source = divided
        inputs = [f"x: [{rows}, {source}]", *(f"{other}: [{rows}, {width}]" for other in self.inputs)]
        # Nothing may be declared that nothing uses.
        read = set(re.findall(r"\bvalue: (\w+)", " ".join(chain)))
        chain = [re.sub(r", save: (\w+)", lambda match: match[0] if match[1] in read else "", step) for step in chain]
        words = set(re.findall(r"\w+", " ".join((*inputs, *chain))))
        arguments = [f"{key}: {value}" for key, value in _ARGUMENTS.items() if key in words]
        return _SPEC.format(
            name=name,
            dims=", ".join(f"{key}: {size}" for key, size in _DIMS.items() if key in words),
            arguments=", ".join(arguments),
            inputs="\n".join(f"  {line}" for line in inputs),
            chain="\n".join(f"  - {step}" for step in chain),
        )


def parameter(op: str, name: str, shape: str, *rest: str) -> str:
    return "{" + ", ".join([f"op: {op}, parameter: {name}, shape: {shape}, init: randn", *rest]) + "}"


BN, LN, RMS = "{op: batch_norm, name: bn}", "{op: layer_norm, name: ln}", "{op: rms_norm, name: rms}"
GN = "{op: group_norm, name: gn, num_groups: groups_of_gn}"
RELU, GELU, SILU = "{op: relu}", "{op: gelu}", "{op: silu}"

HAND_PICKED = {
    "batch_before_group": Other((BN, RELU, GN)),
    "group_before_batch": Other((GN, SILU, BN)),
    "batch_before_layer": Other((BN, GELU, LN)),
    "layer_before_batch": Other((LN, "{op: mish}", BN), square=False),
    "batch_before_rms": Other((BN, RMS)),
    "rms_before_batch": Other((RMS, "{op: square}", BN)),
    "group_before_layer": Other((GN, SILU, LN), bias=False),
    "layer_before_group": Other((LN, GN), linear=False),
    "rms_between_groups": Other((GN, RMS, "{op: group_norm, name: gn2, num_groups: groups_of_gn, affine: false}")),
    "rms_without_eps": Other(("{op: rms_norm, name: rms, eps: null}", RELU)),
    "every_norm": Other((BN, GN, LN, RMS)),
    "two_batch_norms": Other((BN, RELU, "{op: batch_norm, name: bn2, affine: false, momentum: null}")),
    "batch_norms_of_two_kinds": Other((BN, "{op: tanh}", "{op: batch_norm, name: bn2, track_running_stats: false}")),
    "two_kinds_of_sums": Other((BN, "{op: add, input: r}", "{op: batch_norm, name: bn2}"), inputs=("r",), rows=600),
    "batch_norm_bare": Other(("{op: batch_norm, name: bn, affine: false, track_running_stats: false}",), linear=False),
    "batch_norm_of_input": Other((BN, "{op: add, input: x}"), linear=False),
    "group_norm_of_input": Other(("{op: group_norm, name: gn, num_groups: 1}", "{op: mul, input: x}"), linear=False),
    "groups_of_one_channel": Other(("{op: group_norm, name: gn, num_groups: 6}", "{op: exp}"), channels=6),
    "layer_norm_bare": Other(("{op: layer_norm, name: ln, affine: false}", "{op: softplus, beta: 2}"), linear=False),
    # Backward, in evaluation, four constants and two sums of each column.
    "layer_norm_bare_of_batch_norm": Other((BN, "{op: layer_norm, name: ln, affine: false}"), linear=False),
    "layer_norm_of_input": Other((LN, GELU), linear=False),
    "rms_norm_of_input": Other((RMS, SILU), linear=False),
    "layer_norm_without_bias": Other(("{op: layer_norm, name: ln, bias: false}", SILU), square=False),
    "residual": Other(
        (
            "{op: mul, input: x}",
            "{op: prelu, name: act, num_parameters: features}",
            "{op: tanh}",
            "{op: prelu, name: one}",
            "{op: add, input: x}",
        )
    ),
    "residual_detached": Other(("{op: sigmoid}", "{op: add, input: x, detach: true}")),
    # Called as keywords, macros and our own variables are, and as what follows from other names.
    "two_inputs": Other(
        (
            "{op: add, input: rows}",
            "{op: batch_norm, name: template}",
            "{op: mul, input: y, swap: true}",
            parameter("mul", "grad_y", "[features]"),
            parameter("add", "fc_bias", "[1]"),
            parameter("add", "NAN", "[1]"),
            "{op: mul, constant: 1.25, name: dtype_mode}",
            "{op: sub, constant: 0.5, name: groups}",
            "{op: sigmoid, save: sigmoid}",
            "{op: mul, value: sigmoid}",
        ),
        inputs=("rows", "y"),
        square=False,
    ),
    "input_only_detached": Other(("{op: mul, input: r, detach: true}", LN), inputs=("r",)),
    "reuse": Other(("{op: relu, save: v}", BN, "{op: mul, value: v}", "{op: sub, value: v, swap: true, detach: true}")),
    "parameter_only_detached": Other(
        (
            "{op: sigmoid, save: gate}",
            parameter("mul", "p", "[features]", "save: w"),
            "{op: mul, value: w, detach: true}",
            "{op: sub, value: gate}",
        )
    ),
    "with_itself": Other(
        ("{op: tanh, save: t}", "{op: mul, value: t, save: u}", "{op: add, value: u}", "{op: maximum, value: u}")
    ),
    "swapped": Other(
        (parameter("sub", "p", "[features]", "swap: true"), "{op: exp}", "{op: div, constant: 2, swap: true}")
    ),
    "shapes": Other(
        (
            parameter("mul", "a0", "[]"),
            parameter("add", "a1", "[1]"),
            parameter("mul", "a2", "[1, features]"),
            parameter("sub", "a3", "[1, 1]"),
            parameter("maximum", "a4", "[features]"),
            parameter("minimum", "a5", "[1]"),
        )
    ),
    "full_parameter": Other((parameter("mul", "m", "[5, features]"), RMS, "{op: add, parameter: m}"), rows=5),
    "full_parameter_batch_norm": Other(
        (parameter("add", "m", "[5, 12]"), BN, "{op: minimum, parameter: m}"), rows=5, channels=12
    ),
    "scalar_parameter_twice": Other((parameter("mul", "s", "[]"), GN, "{op: add, parameter: s}"), bias=False),
    "div_by_parameter": Other(
        (parameter("div", "d", "[features]"), "{op: div, parameter: d, swap: true}", "{op: tanh}")
    ),
    "constants": Other(
        (
            "{op: mul, constant: scale_by}",
            "{op: div, constant: 4, name: quarter}",
            "{op: add, constant: scale_by}",
            "{op: sub, constant: 0.5, swap: true}",
            "{op: maximum, constant: -0.25}",
            "{op: minimum, constant: scale_by}",
        )
    ),
    "nothing_to_save": Other(("{op: add, input: r}", "{op: mul, constant: scale_by}"), inputs=("r",), linear=False),
    "nothing_to_save_behind_linear": Other(("{op: div, constant: scale_by}",), bias=False),
    "linear_alone": Other(()),
    "activations": Other(
        (
            RELU,
            "{op: leaky_relu, negative_slope: 0.2}",
            GELU,
            "{op: gelu, approximate: tanh}",
            "{op: hardswish}",
            "{op: sigmoid}",
            "{op: silu}",
            "{op: mish}",
            "{op: softplus, beta: scale_by, threshold: 3}",
            "{op: tanh}",
            "{op: exp}",
            "{op: square}",
            "{op: clamp, min: 0.1, max: 3}",
            "{op: clamp, max: scale_by}",
            "{op: clamp, min: 0.2}",
            "{op: hardtanh}",
        ),
        linear=False,
    ),
    "names_of_the_kernels": Other(
        (
            parameter("mul", "row", "[features]"),
            parameter("add", "exp", "[features]"),
            "{op: exp}",
            "{op: mul, constant: 0.5, name: clamp_min}",
            parameter("div", "x_ptr", "[1]"),
            "{op: relu, save: v}",
            parameter("maximum", "max", "[features]"),
            "{op: clamp, min: -0.5}",
            "{op: sub, value: v}",
            "{op: layer_norm, name: square}",
            parameter("mul", "T", "[]"),
            "{op: add, parameter: fc_rstd, shape: [1], init: ones}",
        ),
    ),
}


ACTIVATIONS = (
    "{op: relu}", "{op: leaky_relu}", "{op: gelu}", "{op: gelu, approximate: tanh}", "{op: sigmoid}", "{op: tanh}",
    "{op: silu}", "{op: mish}", "{op: hardswish}", "{op: softplus}", "{op: square}", "{op: clamp, min: -1}",
    "{op: clamp, min: -0.5, max: scale_by}", "{op: hardtanh}", "{op: relu6}", "{op: elu}", "{op: selu}",
    "{op: celu, alpha: scale_by}", "{op: softsign}", "{op: logsigmoid}", "{op: hardsigmoid}", "{op: abs}", "{op: neg}",
)  # fmt: skip


class RandomChain:
    """A chain that only the seed decides."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.linear = self.random.random() < 0.7
        self.rows = self.random.choice([None, None, None, 7])
        self.inputs = tuple(f"r{i}" for i in range(self.random.choice([0, 0, 1, 2])))
        self.shapes: dict[str, str] = {}
        self.saved: list[str] = []
        self.norms = 0

    def chain(self) -> Other:
        count = self.random.randint(2, 7)
        steps = [self._step() for _ in range(count)]
        steps += [
            f"{{op: add, input: {name}}}" for name in self.inputs if not any(f"input: {name}" in s for s in steps)
        ]
        return Other(tuple(steps), self.linear, self.random.random() < 0.7, self.inputs, self.rows)

    def _step(self) -> str:
        kind = self.random.random()
        text = self._norm() if kind < 0.3 else self._arithmetic() if kind < 0.7 else self.random.choice(ACTIVATIONS)
        if self.random.random() < 0.25:
            self.saved.append(f"s{len(self.saved)}")
            text = text[:-1] + f", save: {self.saved[-1]}}}"
        return text

    def _norm(self) -> str:
        self.norms += 1
        affine = self.random.choice(["", ", affine: false"])
        kinds = [
            "batch_norm",
            "batch_norm, track_running_stats: false",
            "batch_norm, momentum: null",
            "layer_norm",
            "rms_norm",
        ]
        kinds += ["group_norm, num_groups: groups_of_gn"] * 2 + ["group_norm, num_groups: 1"]
        return f"{{op: {self.random.choice(kinds)}, name: n{self.norms}{affine}}}"

    def _arithmetic(self) -> str:
        swap = self.random.choice(["", "", ", swap: true"])
        op = self.random.choice(["add", "sub", "mul", "minimum", "maximum"])
        source = self.random.choice(["parameter", "parameter", "again", "constant", "value", "input"])
        detach = self.random.choice(["", "", ", detach: true"])
        if source == "again" and self.shapes:
            return f"{{op: {op}, parameter: {self.random.choice(sorted(self.shapes))}{swap}}}"
        if source == "value" and self.saved:
            return f"{{op: {op}, value: {self.random.choice(self.saved)}{swap}{detach}}}"
        if source == "input":
            return f"{{op: {op}, input: {self.random.choice(['x', *self.inputs])}{swap}{detach}}}"
        if source == "constant":
            return f"{{op: {self.random.choice([op, 'div'])}, constant: {self.random.choice(['scale_by', '1.5'])}}}"
        name = f"p{len(self.shapes)}"
        full = ["[7, features]"] if self.rows else []
        self.shapes[name] = self.random.choice(["[]", "[1]", "[features]", "[features]", "[1, features]", *full])
        if self.random.random() < 0.2:
            op, swap = "div", ""
        return (
            parameter(op, name, self.shapes[name]) if not swap else parameter(op, name, self.shapes[name], "swap: true")
        )
