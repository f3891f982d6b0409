"""Specs that look like someone's: every key an op may have, with values that mostly fit."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from fusegen.ops import activations, bounds, norms, powers, reductions, rounding, thresholds, transcendental
from fusegen.ops.arithmetic import Arithmetic
from fusegen.ops.scalars import Scalar
from fusegen.ops.step import Step
from fusegen.spec.base import NOT_NULL

NORMS = {op: step for step in norms.STEPS for op in step.ops()}
OVER_CHANNELS = {op: step for step in reductions.STEPS for op in step.ops()}
OF_ONE = (activations, thresholds, bounds, rounding, powers, transcendental)
UNARY = {op: step for each in OF_ONE for step in each.STEPS for op in step.ops()}
BINARY = Arithmetic.ops()
NAMES = (
    "a",
    "b",
    "scale",
    "shift",
    "norm",
    "bn",
    "gate",
    "v",
    "value",
    "row",
    "exp",
    "x_ptr",
    "a_bias",
    "T",
    "In",
    "u",
)


class _Draft:
    """A spec in the making: what later steps can refer to."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.rows = draw(st.sampled_from(("batch", "batch", "batch", 7)))
        self.width = draw(st.sampled_from(("features", "features", 24)))
        self.inputs = {"x": [self.rows, self.width]}
        self.arguments: dict[str, Any] = {}
        self.parameters: list[str] = []
        self.saved: list[str] = []
        self.names = list(draw(st.permutations(NAMES)))
        self.chain: list[dict[str, Any]] = []

    def name(self) -> str:
        """Mostly a new one."""
        if self.draw(st.integers(0, 19)) == 0 or not self.names:
            return self.draw(st.sampled_from(NAMES))
        return self.names.pop()

    def number(self) -> Any:
        """A literal, or an argument that is declared with it."""
        if self.draw(st.booleans()):
            return self.draw(st.sampled_from((0, 1, -0.5, 0.25, 2, 1e-3, 3.5, -0.0, 1e-20, 123456789.0)))
        name = self.draw(st.sampled_from(("by", "slope", "low", "high")))
        default = self.draw(st.sampled_from((None, 0.5, 2)))
        self.arguments.setdefault(name, {"type": "float", **({} if default is None else {"default": default})})
        return name

    def norm(self) -> dict[str, Any]:
        return self.of(NORMS)

    def over_channels(self) -> dict[str, Any]:
        return self.of(OVER_CHANNELS)

    def to_elements(self) -> list[dict[str, Any]]:
        """What makes rows and channels of a value of each row: an input, perhaps behind functions of the value."""
        self.inputs.setdefault("r", [self.rows, self.width])
        between = [self.unary() for _ in range(self.draw(st.integers(0, 2)))]
        return [*between, {"op": self.draw(st.sampled_from(BINARY)), "input": "r"}]

    def unary(self) -> dict[str, Any]:
        step = self.of(UNARY)
        if step["op"] == "clamp" and step.keys() <= {"op"}:
            step["min"] = -1
        if step["op"] == "hardtanh":
            step["min_val"] = -2
        return step

    def of(self, models: dict[str, type[Step]]) -> dict[str, Any]:
        """An op with some of the keys that its model has."""
        op = self.draw(st.sampled_from(sorted(models)))
        step: dict[str, Any] = {"op": op}
        for key, field in models[op].model_fields.items():
            if key not in ("op", "save", "from_") and (field.is_required() or self.draw(st.integers(0, 2)) == 0):
                step[key] = self.of_key(key, field)
        return step

    def of_key(self, key: str, field: FieldInfo) -> Any:
        """A value for a key: an argument where one may stand, an example of the model's, or null where that is one."""
        if key == "name":
            return self.name()
        if key == "num_groups":
            size = self.draw(st.sampled_from((1, 4, 4, 4, "groups_of", 5)))
            if size == "groups_of":
                self.arguments["groups_of"] = {"type": "int", "typical": 4}
            return size
        if key == "num_parameters":
            return self.draw(st.sampled_from((1, self.width, self.width, 5)))
        if field.annotation in (Scalar, Scalar | None):
            return self.number()
        may_be_null = [None] if type(None) in get_args(field.annotation) and NOT_NULL not in field.metadata else []
        return self.draw(st.sampled_from([*field.examples, *may_be_null]))

    def binary(self) -> dict[str, Any]:
        step = {"op": self.draw(st.sampled_from(BINARY)), **self.operand()}
        return step | self.draw(st.sampled_from(({}, {}, {"swap": True})))

    def operand(self) -> dict[str, Any]:
        kind = self.draw(st.sampled_from(("parameter", "again", "constant", "value", "input")))
        detach = self.draw(st.sampled_from(({}, {}, {"detach": True})))
        if kind == "again" and self.parameters:
            return {"parameter": self.draw(st.sampled_from(self.parameters))}
        if kind == "value" and self.saved:
            return {"value": self.draw(st.sampled_from(self.saved)), **detach}
        if kind == "input":
            name = self.draw(st.sampled_from(("x", "r", "s_2")))
            self.inputs.setdefault(name, [self.rows, self.width])
            return {"input": name, **detach}
        if kind == "constant":
            number = self.number()
            named = {} if isinstance(number, str) or self.draw(st.booleans()) else {"name": self.name()}
            return {"constant": number, **named}
        self.parameters.append(self.name())
        shapes = [[], [1], [self.width], [1, self.width], [self.rows, self.width], [3], [self.rows, 1]]
        shape: Any = self.draw(st.sampled_from((*shapes[:5], *shapes[:5], *shapes)))
        if shape and self.draw(st.integers(0, 3)) == 0:
            self.arguments["like"], shape = {"type": "shape", "is": shape}, "like"
        init = self.draw(st.sampled_from(("randn", "rand", "ones", "zeros", 0.5)))
        return {"parameter": self.parameters[-1], "shape": shape, "init": init}


@st.composite
def plausible(draw: st.DrawFn) -> dict[str, Any]:
    """A whole spec. Most are right; names that meet and shapes that do not fit are left in."""
    draft = _Draft(draw)
    if draw(st.integers(0, 9)) < 6:
        source = draw(st.sampled_from((draft.width, "in_features")))
        draft.inputs["x"] = [draft.rows, source]
        bias = draw(st.sampled_from(({}, {"bias": False})))
        draft.chain.append({"op": "linear", "name": draft.name(), "out_features": draft.width, **bias})
    for _ in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from((draft.norm, draft.unary, draft.over_channels, draft.binary, draft.binary)))
        step = kind()
        if draw(st.integers(0, 4)) == 0:
            draft.saved.append(f"s{len(draft.saved)}")
            step["save"] = draft.saved[-1]
        draft.chain.append(step)
        if "keepdim" in step and draw(st.integers(0, 5)):
            draft.chain += draft.to_elements()
    return _declared(draft)


def _declared(draft: _Draft) -> dict[str, Any]:
    """With dims and arguments for what is used, and without names that nothing uses."""
    read = {step.get("value") for step in draft.chain}
    chain = [{key: each for key, each in step.items() if key != "save" or each in read} for step in draft.chain]
    sizes = {"batch": 32, "features": 24, "in_features": 40}
    mentioned = {size for shape in draft.inputs.values() for size in shape}
    mentioned |= {size for step in chain if isinstance(step.get("shape"), list) for size in step["shape"]}
    mentioned |= {step.get("out_features") for step in chain}
    mentioned |= set(draft.arguments["like"]["is"]) if "like" in draft.arguments else set()
    dims = {name: size for name, size in sizes.items() if name in mentioned}
    required = {name: each for name, each in draft.arguments.items() if "default" not in each}
    optional = {name: each for name, each in draft.arguments.items() if "default" in each}
    arguments = {name: {"type": "dim"} for name in dims if name != "batch"} | required | optional
    return {
        "fusegen": 1,
        "name": "drafted",
        "about": "A chain of the tests",
        **({"dims": dims} if dims else {}),
        **({"arguments": arguments} if arguments else {}),
        "inputs": draft.inputs,
        "dtypes": draft.draw(st.sampled_from((["float32"], ["bfloat16", "float16"], ["float16", "float32"]))),
        "chain": chain,
    }
