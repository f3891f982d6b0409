"""Values in the order of a chain: each step goes on from the result before it, and saves what later ones take."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticCustomError

from fusegen.importing.divided import Divided
from fusegen.importing.operands import lacking
from fusegen.importing.places import Place, refusal
from fusegen.importing.values import CHANNELS, Number, Value, walk
from fusegen.ops.arithmetic import Arithmetic
from fusegen.ops.catalogue import STEPS
from fusegen.spec.names import check_attribute, check_identifier

# The steps of the catalogue, by their ops.
MODELS = {op: step for step in STEPS for op in step.ops()}
ARITHMETIC = Arithmetic.ops()
_COMMUTATIVE = ("add", "mul", "minimum", "maximum")
_ASSIGNED = re.compile(r"\s*([A-Za-z]\w*)\s*=[^=]")
_MINUS = Number(-1.0)
_FIRST = "a chain begins with the first argument of forward"
_ANCHORS = {"linear": "a linear layer", "matmul": "a matrix product"}


@dataclass
class Draft:
    """A step to be: as in a spec, but that a size may be CHANNELS. value: what it computes."""

    data: dict[str, Any]
    value: Value

    @property
    def place(self) -> Place | None:
        return self.value.place

    @property
    def options(self) -> dict[str, list[Any]]:
        """The entries of a convolution's options; {} for another step."""
        return {key: entries(self.data[key]) for key in OPTIONS if key in self.data}


# Keys of a convolution that are whole numbers, or one for each dimension of positions.
OPTIONS = ("kernel_size", "stride", "padding", "output_padding", "dilation", "groups")


def entries(value: Any) -> list[Any]:
    """What a key has: an option may have one entry for each dimension."""
    return value if isinstance(value, list) else [value]


def steps(result: Value, inputs: list[str], taken: Iterable[str]) -> list[Draft]:
    """The steps of a result. inputs: the names of the module's. taken: names that saved values cannot have."""
    order = [value for value in walk(result) if not value.is_leaf and value.op != "detach"]
    beside = {id(value) for value in order if _affine(value, inputs[0])}
    order = [value for value in order if id(value) not in beside]
    names = _Names({*inputs, *taken})
    found: list[Draft] = []
    first = next((value for value in walk(result) if value.op == "input" and value.name == inputs[0]), None)
    running: Value | None = first
    done: dict[int, Draft] = {}
    divided: Divided | None = None
    for value in order:
        if value.op == "part":
            divided = divided or _divided(value, running, names, found)
            if not divided.has(value):
                raise refusal("FG707", "the channels are divided twice", value.place, "a chain divides them once")
            divided.take(value)
            running = value if divided.value is running else running
            continue
        if divided is not None and running is not None and running.op == "part":
            running = divided.first_of(value) or running
        if value.op not in MODELS:
            raise lacking(value.op, value.place)
        if running is None or not any(each is running for each in value.values):
            raise _branch(value, running, not found)
        if MODELS[value.op].anchor and found:
            hint = "end the chain before it: import what is in front and behind as modules of their own"
            what = _ANCHORS.get(value.op, "a convolution")
            raise refusal("FG707", f"{what} is not the first step", value.place, hint)
        if value.op == "matmul":
            for each in value.values[1:]:
                _check_parameter(each, value)
        if MODELS[value.op].divides:
            _check_divided(value, running, found)
        _check_inputs(value, running if first is None else first)
        draft = Draft(_data(value, running, done, names, divided), value)
        found.append(draft)
        done[id(value)] = draft
        running = value
    return found


def _data(
    value: Value, running: Value, done: dict[int, Draft], names: _Names, divided: Divided | None
) -> dict[str, Any]:
    data: dict[str, Any] = {"op": value.op}
    if value.name:
        data["name"] = value.name
    elif "name" in MODELS[value.op].model_fields and value.op not in ARITHMETIC:
        data["name"] = names.new("norm")
    if value.op in ARITHMETIC:
        data |= _operand(value, running, done, names, divided)
    for key, each in value.keys.items():
        data[key] = [_written(entry) for entry in each] if isinstance(each, tuple) else _written(each)
    return data


def _written(key: Any) -> Any:
    return (key.argument or key.value) if isinstance(key, Number) else key


def _operand(
    value: Value, running: Value, done: dict[int, Draft], names: _Names, divided: Divided | None
) -> dict[str, Any]:
    """The keys that name the other operand of a step."""
    left, right = value.operands
    swap = left is not running
    other = left if swap else right
    keys: dict[str, Any] = {}
    affine = _affine(other, "") if isinstance(other, Value) else None
    if affine is not None:
        other, numbers = affine
        keys |= {key: each.argument or each.value for key, each in numbers.items()}
    if isinstance(other, Number):
        keys["constant"] = other.argument or other.value
    elif other.op == "parameter":
        _check_parameter(other, value)
        keys = {"parameter": other.name, **keys}
    else:
        source = other
        if source.op == "detach":
            keys["detach"] = True
            source = source.values[0]
        if source.op == "input":
            keys = {"input": source.name, **keys}
        elif source.op == "part" and divided is not None:
            keys = {"value": divided.name_of(source), **keys}
        elif id(source) in done:
            draft = done[id(source)]
            draft.data.setdefault("save", names.of(draft))
            keys = {"value": draft.data["save"], **keys}
        else:
            raise _branch(value, running, False)
    if swap and value.op not in _COMMUTATIVE:
        keys["swap"] = True
    return keys


def _affine(value: Value, first: str) -> tuple[Value, dict[str, Number]] | None:
    """A parameter or an input that is scaled and moved, in this order, and by what; None for anything else. first: the
    name of the input that a chain goes on from, which is none."""
    plus: Number | None = None
    times: list[Number] = []
    while not value.is_leaf:
        number = next((each for each in value.operands if isinstance(each, Number)), None)
        if value.op == "neg":
            times.append(_MINUS)
        elif value.op == "mul" and number is not None:
            times.append(number)
        elif value.op in ("add", "sub") and number is not None and plus is None and not times:
            plus = number
            if value.op == "sub" and value.operands[0] is number:
                times.append(_MINUS)
            elif value.op == "sub":
                if number.argument:
                    return None
                plus = Number(-number.value)
        else:
            return None
        (value,) = value.values
    if len(times) > 1:
        if any(each.argument for each in times):
            return None
        times = [Number(math.prod(each.value for each in times))]
    numbers = {**({"times": times[0]} if times else {}), **({"plus": plus} if plus else {})}
    is_operand = value.op == "parameter" or (value.op == "input" and value.name != first)
    return (value, numbers) if numbers and is_operand else None


def _divided(part: Value, running: Value | None, names: _Names, found: list[Draft]) -> Divided:
    """The step that makes the parts."""
    _check_divided(part, running, found)
    source = part.values[0]
    count = part.keys["count"]
    divided = Divided(source, [names.new(each) for each in Divided.assigned(part.place, count)])
    found.append(Draft(divided.data, part))
    return divided


def _check_divided(value: Value, running: Value | None, found: list[Draft]) -> None:
    """What is divided is the result of the layer that the chain begins with."""
    if running is None or value.values[0] is not running or len(found) != 1 or not MODELS[found[0].data["op"]].anchor:
        hint = "it may divide the result of the layer that the chain begins with"
        raise refusal("FG707", "the channels are divided in the middle of the chain", value.place, hint)


def _check_inputs(value: Value, first: Value) -> None:
    """Every input lies as the first one does, or has one value for each row, each channel, or in all. In front of a
    convolution, only the first."""
    allowed = [first.layout]
    if first.layout[-1] == CHANNELS:
        allowed += [first.layout[:-1], (CHANNELS,), ()]
    for each in walk(value):
        if each.op == "input" and each.layout not in allowed:
            hint = "a further input of a chain has the shape of the running value, or broadcasts to [rows, channels]"
            raise refusal("FG707", f"the input '{each.name}' has not the shape of the result", value.place, hint)


def _check_parameter(parameter: Value, value: Value) -> None:
    try:
        check_attribute(parameter.name)
    except PydanticCustomError as error:
        inner = "." in parameter.name
        message = f"the parameter '{parameter.name}' belongs to a submodule" if inner else error.message()
        hint = "make it an attribute of the module itself" if inner else "rename it"
        raise refusal("FG706", message, value.place, hint) from None


def _branch(value: Value, running: Value | None, is_first: bool) -> Exception:
    if all(each.op != "input" for each in walk(value)):
        hint = "such an operand has to be a parameter, a number, an input or the result of an earlier step"
        return refusal("FG707", "an operand that is computed from parameters alone", value.place, hint)
    if not is_first and all(each.is_leaf for each in walk(value) if each is not value):
        hint = "such an operand has to be an input as it is, a parameter, a number or the result of an earlier step"
        return refusal("FG707", "an operand that is computed beside the chain", value.place, hint)
    if any(each.op == "detach" for each in value.values):
        hint = "of what is detached, a chain has operands alone: of add, mul and the like"
        return refusal("FG707", f"{value.op} goes on from a detached value", value.place, hint)
    computed = [each for each in value.values if not each.is_leaf]
    if is_first and not computed:
        return refusal("FG707", f"{value.op} does not take the first input", value.place, _FIRST)
    hint = "a step goes on from the result of the one before it; of earlier results it only takes operands"
    return refusal("FG707", f"the module branches here: {value.op} starts from an earlier value", value.place, hint)


class _Names:
    """Names for values, which nothing else has."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = taken

    def of(self, draft: Draft) -> str:
        """The variable that the user's source assigns the value to, if it is one."""
        source = draft.place.source if draft.place else ""
        assigned = _ASSIGNED.match(source)
        return self.new(assigned[1] if assigned and assigned[1] not in self.taken else "v")

    def new(self, wanted: str) -> str:
        try:
            check_identifier(wanted)
        except PydanticCustomError:
            wanted = "v"
        number, name = 1, wanted
        while name in self.taken:
            number += 1
            name = f"{wanted}_{number}"
        self.taken.add(name)
        return name
