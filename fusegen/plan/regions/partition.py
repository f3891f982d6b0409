"""Cuts the steps of a chain into regions: each is a chain of its own, with at most one anchor, in front.

A region begins with the chain, at an anchor, at a step that says `from` what no value of the region is, and where a
step's channels are another number of trailing dimensions (`fusegen.chain.trailing`). Between regions full-size values
flow: a region takes what earlier ones have made as inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fusegen.chain.shape import certain
from fusegen.errors import Diagnostic
from fusegen.ir.axes import Dim
from fusegen.ops.step import Step
from fusegen.plan.regions.boundaries import (
    Width,
    can_be_exchanged,
    is_width_boundary,
    operand_of,
    row_width,
    width_of,
    widths,
)
from fusegen.plan.regions.broadcast_regions import why_no_region
from fusegen.plan.regions.images import Images
from fusegen.plan.regions.region import (
    Region,
    Running,
    Shape,
    begins_region,
    channels_behind,
    is_behind_convolution,
)
from fusegen.spec.document import Document, DocumentPath
from fusegen.spec.model import RESULT, TWICE, SpecModel
from fusegen.spec.names import free_name
from fusegen.spec.wording import nearest


@dataclass
class _Open:
    """A region while its steps are walked through. spatial: how many dimensions of positions its values have, in front
    of a layer that PyTorch calls. own: the names that its steps save."""

    first: int
    source: str
    spatial: int
    steps: list[Step] = field(default_factory=list)
    inputs: dict[str, Shape] = field(default_factory=dict)
    own: list[str] = field(default_factory=list)

    @property
    def spatial_behind(self) -> int:
        """How many dimensions of positions the running value has."""
        return self.steps[-1].spatial_behind(self.spatial) if self.steps else self.spatial


class Partition:
    """The regions of a spec, and what is wrong with what they take from each other.

    returned: the name in the module's forward of each value that it returns. used: names of inputs and values that
    something takes. images: the dimensions of values.
    """

    def __init__(self, spec: SpecModel, document: Document) -> None:
        self.spec, self.document = spec, document
        self.diagnostics: list[Diagnostic] = []
        self.shapes: dict[str, Shape] = dict(spec.inputs)
        self.made_by: dict[str, int] = {}
        self.used: set[str] = set()
        taken = {*spec.inputs, *spec.arguments, *spec.dims, *(name for step in spec.chain for name in step.saved)}
        self._taken = {*taken, *(getattr(step, "name", None) for step in spec.chain)} - {None}
        self.images = Images(spec, self.claim, self.shapes)
        self._names: set[str] = set()
        self._widths, self._behind = widths(spec, self.images.spatial)
        self._of_rows: set[str] = set()
        self._kinds = {spec.running_input: "number"}
        self._parameters: dict[str, dict[str, Any]] = {}
        self._open: list[_Open] = []
        self._walk()
        self.regions = tuple(self._regions())
        self.returned = self._returned()
        self._unused()

    # What steps take

    def _walk(self) -> None:
        running = self.spec.running_input
        for index, step in enumerate(self.spec.chain):
            now = self._open[-1] if self._open else None
            if now is None or self._begins(index, now):
                source = step.from_ or running
                self._known(source, index, "from")
                if now is not None and self._widens(index, now):
                    source, step = self._exchanged(step, source)
                now = _Open(index, source, self.images.in_front[index])
                now.inputs[source] = self._shape(source)
                self._rows(source, index)
                self._kind(source, index, "from")
                self._open.append(now)
                step = step.model_copy(update={"from_": None})
            elif step.from_ is not None:
                self.used.add(step.from_)
            now.steps.append(self._with_inputs(step, index, now))
            running = self._save(step, index, now)

    def _save(self, step: Step, index: int, now: _Open) -> str:
        """The name of a step's result."""
        places = [("save",)] if len(step.saved) == 1 else [("parts", part) for part in range(len(step.saved))]
        for place, name in zip(places, step.saved, strict=False):
            if name in self.shapes:
                message = f"a value named '{name}' exists already"
                if name in self.spec.inputs:
                    message = f"'{name}' is an input: a value needs another name"
                self._add("FG208", message, ("chain", index, *place))
        last = index + 1 == len(self.spec.chain) or self._begins(index + 1, now)
        names = [name for name in step.saved if name != step.running_name]
        running = step.running_name or (self.claim(f"{self._name(now)}_result") if last else "")
        is_called = step.is_called(now.spatial)
        for name in [*names, running] if running else names:
            now.own.append(name)
            shape = self._here(now)
            if not is_called and self._behind[index] == 1 != self.images.channels(shape, now.spatial):
                shape = self.images.of_one_channel(shape, now.spatial)
                self._of_rows.add(name)
            self.shapes.setdefault(name, shape)
            self.made_by.setdefault(name, len(self._open) - 1)
        return running

    def _begins(self, index: int, now: _Open) -> bool:
        """Whether a region begins with a step. now: the one that the step before is in."""
        running = Running(now.source, now.steps, self._view(now), self.images.in_front, self.images.rows)
        operand = self._operand(self.spec.chain[index], now)
        return begins_region(index, running, self._widths[index], operand, self.spec) or self._widens(index, now)

    def _view(self, now: _Open) -> Dim | None:
        return self.images.channels(self._here(now), now.spatial_behind)

    def _here(self, now: _Open) -> Shape:
        """The shape of the running value."""
        return self.images.behind(now.steps, self._shape(now.source), now.spatial)

    def _operand(self, step: Step, now: _Open) -> Width:
        """The channels of what a step takes besides the running value. Of images, beside those of one channel."""
        shape = self.shapes.get(operand_of(step) or "", ())
        if now.spatial_behind:
            here = self._here(now)
            alike = shape[:1] + shape[2:] == here[:1] + here[2:] and self._view(now) == 1
            return width_of(shape, now.spatial_behind) if alike else 1
        if self.images.spatial:
            return width_of(shape) if len(shape) == 2 else 1
        return row_width(shape, self._shape(self.spec.running_input))

    def _widens(self, index: int, now: _Open) -> bool:
        """Whether the operand of a step has all rows, and its region has not, or another width."""
        step = self.spec.chain[index]
        if self._is_broadcast(now) and can_be_exchanged(step) and self._has_all_rows(operand_of(step)):
            return True
        if now.spatial_behind and can_be_exchanged(step):
            operand = self.shapes.get(operand_of(step) or "", ())
            here = self._here(now)
            if self.images.has_one_position(here, now.spatial_behind) and len(operand) == len(here):
                return not self.images.has_one_position(operand, now.spatial_behind)
        return is_width_boundary(step, self._widths[index], self._view(now), self._operand(step, now))

    def _is_broadcast(self, now: _Open) -> bool:
        """Whether a region has other rows than the first input."""
        of_images = now.spatial or self.images.spatial
        return not of_images and None not in self._shape(now.source)[:-1] and not self._has_all_rows(now.source)

    def _has_all_rows(self, name: str | None) -> bool:
        shape, first = self.shapes.get(name or "", ()), self._shape(self.spec.running_input)
        return len(shape) == len(first) and shape[:-1] == first[:-1]

    def _exchanged(self, step: Step, running: str) -> tuple[str, Step]:
        """A step whose operand begins a region: the name of that, and the step with the two exchanged."""
        operand = operand_of(step) or ""
        self.used |= {operand, running}
        update = {"input": None, "value": running, "swap": not getattr(step, "swap", False)}
        return operand, step.model_copy(update=update)

    def _with_inputs(self, step: Step, index: int, now: _Open) -> Step:
        """The step with what earlier regions have made as inputs, and with the parameters that it makes anew."""
        changes: dict[str, Any] = {}
        value = step.taken_value
        if value is not None and value in now.own:
            self.used.add(value)
        elif value is not None:
            if value in self.spec.inputs:
                self._add("FG301", f"no step before this one saves '{value}'", ("chain", index, "value"),
                          f"'{value}' is an input: give it as one")  # fmt: skip
            else:
                self._known(value, index, "value")
            changes = {"value": None, "input": value}
            now.inputs.setdefault(value, self._shape(value))
        for each in step.further_values:
            self._known(each, index, "values")
            if each in self.spec.inputs:
                self._kind(each, index, "value")
            now.inputs.setdefault(each, self._shape(each))
        for key in ("input", "mask", "target", "weight"):
            given = getattr(step, key, None)
            if given is None:
                continue
            if given not in self.spec.inputs:
                self._add("FG301", f"no input named '{given}'", ("chain", index, key), _meant(given, self.spec.inputs))
            self.used.add(given)
            self._kind(given, index, key)
            now.inputs.setdefault(given, self._shape(given))
        name = getattr(step, "parameter", None)
        if name is not None and getattr(step, "shape", None) is not None and not step.anchor:
            known = {key: getattr(step, key) for key in ("shape", "init", "learnt") if hasattr(step, key)}
            self._parameters.setdefault(name, known)
        elif name in self._parameters and not any(getattr(each, "parameter", None) == name for each in now.steps):
            changes |= self._parameters[name]
        return step.model_copy(update=changes) if changes else step

    def _known(self, name: str, index: int, key: str) -> None:
        self.used.add(name)
        if name not in self.shapes:
            known = [each for each in self.shapes if key == "from" or each not in self.spec.inputs]
            self._add("FG301", f"no step before this one saves '{name}'", ("chain", index, key), _meant(name, known))

    def _shape(self, name: str) -> Shape:
        """Of an input or a value; of unknown sizes where nobody can tell."""
        return self.shapes.get(name, (certain(None), certain(None)))

    def _rows(self, source: str, index: int) -> None:
        """A region has the rows of the first input, or such that its values broadcast to these."""
        first = self.spec.running_input
        spatial = self.images.in_front[index], self.images.spatial
        reason = why_no_region(self._shape(source), self._shape(first), *spatial)
        if source in self.spec.inputs and source != first and reason is not None:
            hint = "give what is made of it as an input"
            becomes_image = any(step.spatial_behind(0) for step in self.spec.chain)
            if becomes_image and len(self._shape(source)) > len(self._shape(first)) == 2:
                hint = "give images as the first input, and rows behind them"
            message = f"'{source}' has other rows than '{first}', {reason}: a region cannot begin with it"
            self._add("FG303", message, ("chain", index, "from"), hint)

    def _kind(self, name: str, index: int, key: str) -> None:
        """An input is a mask or a target wherever it is taken, or nowhere."""
        kind = key if key in ("mask", "target") else "number"
        other = self._kinds.setdefault(name, kind)
        if other != kind:
            first, second = sorted((kind, other), key=("mask", "target", "number").index)
            self._add("FG307", f"the input '{name}' cannot be both a {first} and a {second}", ("chain", index, key))

    # What regions make

    def _name(self, now: _Open) -> str:
        named = [getattr(step, "name", "") for step in now.steps if step.anchor]
        named = named or [getattr(step, "name", "") for step in now.steps if step.module]
        return named[0] if named else f"region_{self._open.index(now) + 1}"

    def claim(self, name: str) -> str:
        """The name, or one like it that nothing has."""
        found = free_name(name, self._taken)
        self._taken.add(found)
        return found

    def _regions(self) -> Iterator[Region]:
        wanted = {name for now in self._open for name in now.inputs}
        wanted |= {name for name in self.spec.outputs or () if name in self.shapes}
        for index, now in enumerate(self._open):
            last = now.own[-1] if now.own else ""
            results = [name for name in now.own[:-1] if name in wanted]
            if last not in wanted and index + 1 < len(self._open):
                place = ("chain", now.first + len(now.steps) - 1)
                self._add("FG306", "nothing uses the value of this step", place, "the next step is from another one")
            name = self._name(now)
            while name in self._names:
                name = f"{name}_{index + 1}"
            self._names.add(name)
            source = self._shape(now.source)
            own = self.images.channels(source, now.spatial)
            channels = certain(own), certain(channels_behind(now.steps, own))
            places = tuple(range(now.first, now.first + len(now.steps)))
            inputs = {given: self.images.broadcast(shape, source, now.spatial) for given, shape in now.inputs.items()}
            made = (*results, last)
            yield Region(
                name,
                places,
                tuple(now.steps),
                inputs,
                made,
                channels,
                rows=frozenset(self._of_rows & {*made}),
                is_broadcast=self._is_broadcast(now),
                spatial=now.spatial,
                in_channels_last=is_behind_convolution(now.first, self.spec),
                frame=self.images.frame(self.images.rows[now.first], source),
            )

    def _returned(self) -> tuple[str, ...]:
        last = self.regions[-1].results[-1]
        if self.spec.outputs is None:
            return (last,)
        found = []
        for index, name in enumerate(self.spec.outputs):
            if name not in self.made_by and name != RESULT:
                hint = _meant(name, [RESULT, *(saved for step in self.spec.chain for saved in step.saved)])
                self._add("FG301", f"no step saves '{name}'", ("outputs", index), hint)
            self.used.add(name)
            found.append(name if name in self.made_by else last)
            if found.count(last) > 1:
                self._add("FG208", TWICE.format(self.spec.outputs[found.index(last)], name), ("outputs", index))
        if last not in found:
            place = ("chain", len(self.spec.chain) - 1)
            self._add("FG306", "nothing uses the value of the last step", place, f"add {RESULT} to 'outputs'")
        return tuple(found)

    def _unused(self) -> None:
        """Notes names that no region and no output takes."""
        for name in self.spec.inputs:
            if name not in self.used:
                self._add("FG306", f"nothing uses the input '{name}'", ("inputs", name), key=True)
        saved = {step.save: index for index, step in enumerate(self.spec.chain) if step.save is not None}
        for name, index in saved.items():
            if name not in self.used and name not in self.returned and name != self._running_on(name):
                self._add("FG306", f"nothing uses the value '{name}'", ("chain", index, "save"))

    def _running_on(self, name: str) -> str | None:
        """The name, if the next region begins with the value."""
        return name if any(name == next(iter(region.inputs)) for region in self.regions) else None

    def _add(self, code: str, message: str, path: DocumentPath, hint: str | None = None, key: bool = False) -> None:
        self.diagnostics.append(self.document.diagnostic(code, message, path, key=key, hint=hint))


def _meant(name: str, known: Any) -> str | None:
    close = nearest(name, list(known))
    return f"did you mean '{close}'?" if close else None
