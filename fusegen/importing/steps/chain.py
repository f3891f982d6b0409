"""Values in the order of a chain: each step goes on from the result before it, or says `from` what it does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fusegen.importing.reading.operands import lacking
from fusegen.importing.reading.values import CHANNELS, UNWRITTEN, Number, Value, walk
from fusegen.importing.steps.affine import ARITHMETIC, affine, operands_alone
from fusegen.importing.steps.branches import branch, check_inputs
from fusegen.importing.steps.chunks import Chunk
from fusegen.importing.steps.new_names import NewNames
from fusegen.importing.traces.source_locations import SourceLine, refusal
from fusegen.ops.called_layer import CalledLayer
from fusegen.ops.catalogue import STEPS
from fusegen.spec.model import RESULT

# The steps of the catalogue, by their ops.
MODELS = {op: step for step in STEPS for op in step.ops()}
# Norms over the last dimension, which the channels of images are not.
_OVER_LAST = ("layer_norm", "rms_norm")
_COMMUTATIVE = ("add", "mul", "minimum", "maximum")


@dataclass
class StepDraft:
    """A step to be: as in a spec, but that a size may be CHANNELS. value: what it computes. source: what it goes on
    from."""

    data: dict[str, Any]
    value: Value
    source: Value

    @property
    def place(self) -> SourceLine | None:
        return self.value.place

    @property
    def options(self) -> dict[str, list[Any]]:
        """The entries of the options of a convolution, of pooling or upsampling; {} for another step."""
        return {key: entries(self.data[key]) for key in OPTIONS if key in self.data}


# Keys of such layers that are numbers, or one for each dimension of positions.
OPTIONS = (
    *("kernel_size", "stride", "padding", "output_padding", "dilation", "groups", "output_size"),
    *("size", "scale_factor", "upscale_factor", "downscale_factor"),
)
# Keys that name inputs.
INPUTS = ("input", "mask", "target", "values")


def entries(value: Any) -> list[Any]:
    """What a key has: an option may have one entry for each dimension."""
    return value if isinstance(value, list) else [value]


def inputs_of(draft: StepDraft) -> list[str]:
    """The inputs that a step takes, what it goes on from included."""
    found = [name for key in INPUTS if key in draft.data for name in entries(draft.data[key])]
    return found + ([draft.source.name] if draft.source.op == "input" else [])


class Steps:
    """The steps of a module's results. inputs: the names of the module's. taken: names that saved values cannot have.
    several: whether it returns a tuple. outputs: what the spec returns, if it is one.
    """

    def __init__(self, results: Sequence[Value], inputs: list[str], taken: Iterable[str], several: bool) -> None:
        self.found: list[StepDraft] = []
        self._names = NewNames({*inputs, *taken})
        self._done: dict[int, StepDraft] = {}
        self._owners: set[str] = set()
        self._parts: dict[int, Chunk] = {}  # by the value that is divided
        order = [
            value for value in walk(*sorted(results, key=_drops_channels)) if not value.is_leaf and value.op != "detach"
        ]
        leaves = [value for value in walk(*results) if value.op == "input"]
        self._first = next((value for value in leaves if value.name == inputs[0]), None)
        self._running = self._first
        self._waiting: Chunk | None = None  # of which no step has taken a part
        beside = operands_alone(order, results, self._first)
        for value in order:
            if id(value) not in beside:
                self._add(value)
        self.outputs = [self._output(each) for each in results] if several else None
        if len(set(self.outputs or ())) < len(results) and several:
            raise refusal("FG705", "two results are the same value", results[0].place, "return each once")

    def _add(self, value: Value) -> None:
        if value.op == "part":
            self._divide(value)
            return
        if value.op not in MODELS:
            raise lacking(value.op, value.place)
        source = self._source(value)
        check_inputs(value, self._first)
        data = self._data(value, source)
        draft = StepDraft(data, value, source)
        self.found.append(draft)
        self._done[id(value)] = draft
        self._running = value

    # What a step goes on from

    def _source(self, value: Value) -> Value:
        """Of its operands the one that it goes on from."""
        running = self._running
        waiting, self._waiting = self._waiting, None
        part = waiting.first_of(value) if waiting else None
        if part is not None:  # the first step behind a chunk decides which part is the running one
            self._running = part
            return part
        fit = value.values if value.op in ARITHMETIC else value.values[:1]
        given, fit = fit, [each for each in fit if each.op not in ("parameter", "detach") and (affine(each) is None)]
        fit = [each for each in fit if each.op == "input" or each.op == "part" or id(each) in self._done]
        if running is not None and any(each is running for each in given):
            gated = [each for each in fit if not _is_narrow(each)] if _is_narrow(running) else []
            return gated[0] if gated else running
        fit.sort(
            key=lambda each: (
                *(CHANNELS not in each.layout, _is_narrow(each)),
                *(each.op == "input", each.op == "part"),
            )
        )
        if not fit:
            raise branch(value, self._running, not self.found)
        return fit[0]

    def _name_of(self, value: Value) -> str:
        """What the spec calls a value that was made, or an input."""
        if value.op == "input":
            return value.name
        if value.op == "part":
            return self._parts[id(value.values[0])].name_of(value)
        draft = self._done[id(value)]
        if "save" not in draft.data:
            draft.data["save"] = self._names.of(draft.place)
        return draft.data["save"]

    def _output(self, value: Value) -> str:
        if value.is_leaf:
            raise refusal("FG705", f"a result is the {value.op} '{value.name}' itself", None, "return a new tensor")
        is_last = value is self.found[-1].value and "save" not in self.found[-1].data
        return RESULT if is_last else self._name_of(value)

    def _divide(self, part: Value) -> None:
        """Adds the step that makes the parts, with the first of them."""
        source, count = part.values[0], part.keys["count"]
        divided = self._parts.get(id(source))
        if divided is None:
            names = [self._names.new(each) for each in Chunk.assigned(part.place, count)]
            divided = Chunk(source, names)
            data = dict(divided.data) if source is self._running else {"from": self._name_of(source), **divided.data}
            divided.data = data
            self.found.append(StepDraft(data, part, source))
            self._parts[id(source)] = self._waiting = divided
            self._running = None
        elif not divided.has(part):
            raise refusal("FG707", "the channels are divided twice", part.place, "a chain divides them once")
        divided.take(part)

    # Keys

    def _data(self, value: Value, source: Value) -> dict[str, Any]:
        data: dict[str, Any] = {"op": value.op}
        if source is not self._running:
            data["from"] = self._name_of(source)
        if value.name and not (value.name in self._owners and _is_stateless(value)):
            data["name"] = value.name
            self._owners.add(value.name)
        elif "name" in MODELS[value.op].model_fields and value.op not in ARITHMETIC:
            wanted = value.name.replace(".", "_") or MODELS[value.op].model_fields["name"].get_default()
            other = "norm"
            if issubclass(MODELS[value.op], CalledLayer):
                other = "pool" if "pool" in value.op else value.op
            data["name"] = self._names.new(wanted if isinstance(wanted, str) else other)
        if value.op in ARITHMETIC:
            data |= self._operand(value, source)
        elif value.op == "cat":
            data["values"] = [self._name_of(each) for each in value.values[1:]]
        for key, each in value.keys.items():
            if key not in UNWRITTEN:
                data[key] = [_written(entry) for entry in each] if isinstance(each, tuple) else _written(each)
        if value.positions and value.op in ("cat", "narrow"):
            data["dim"] = 1
        if value.positions and value.op in _OVER_LAST and "normalized_shape" not in value.keys:
            data["dim"] = 1
        return data

    def _operand(self, value: Value, running: Value) -> dict[str, Any]:
        """The keys that name the other operand of a step."""
        left, right = value.operands
        swap = left is not running
        other = left if swap else right
        keys: dict[str, Any] = {}
        moved = affine(other) if isinstance(other, Value) and id(other) not in self._done else None
        if moved is not None:
            other, more = moved
            keys |= {key: _written(each) for key, each in more.items()}
        if isinstance(other, Number):
            keys["constant"] = other.argument or other.value
        elif other.op == "parameter":
            keys = {"parameter": other.name, **keys}
        else:
            source = other
            if source.op == "detach":
                keys["detach"] = True
                source = source.values[0]
            if source.op == "input":
                keys = {"mask" if source.keys.get("kind") == "mask" else "input": source.name, **keys}
            elif source.op == "part" or id(source) in self._done:
                keys = {"value": self._name_of(source), **keys}
            else:
                raise branch(value, running, False)
        if swap and value.op not in _COMMUTATIVE:
            keys["swap"] = True
        return keys


def _drops_channels(value: Value) -> bool:
    """Whether a result has no dimension for the channels, which is the last value of a chain."""
    if value.op == "cross_entropy" or value.reduces_channels:
        return not value.keys.get("keepdim")
    return CHANNELS not in value.layout and any(map(_drops_channels, value.values))


def _is_narrow(value: Value) -> bool:
    """Whether an image has one position in some dimensions and not in all: a reduction, and what is made of it.
    Planning exchanges operands itself where one has one position in all."""
    if not value.positions or value.is_leaf:
        return False
    if value.reduced:
        return max(value.reduced) > 1 and not {*range(2, len(value.layout))} <= {*value.reduced}
    images = [each for each in value.values if each.positions and each.op != "parameter"]
    return len(images) > 0 and all(map(_is_narrow, images))


def _is_stateless(value: Value) -> bool:
    """Whether a layer has no tensors: a second use of it may have a name of its own."""
    norm = value.op in ("layer_norm", "group_norm", "rms_norm", "instance_norm") and value.keys.get("affine") is False
    norm = norm and not value.keys.get("track_running_stats")
    return norm or value.op == "dropout" or issubclass(MODELS[value.op], CalledLayer)


def _written(key: Any) -> Any:
    return (key.argument or key.value) if isinstance(key, Number) else key
