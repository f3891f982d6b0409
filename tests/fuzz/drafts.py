"""What a random chain is made of, and how it begins and ends as a spec."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any

Step = dict[str, Any]
WIDTHS = ("features", "hidden", "channels")
SIZES = {"batch": 8, "positions": 6, "heads": 3, "features": 24, "hidden": 36, "channels": 12, "depth": 5,
         "height": 7, "width": 9, "keys": 12}  # fmt: skip
KINDS = ("rows", "rows", "rows", "leading", "leading", "convolution", "convolution", "bmm")
KINDS += ("images", "convolutions", "convolutions", "groups", "groups")


@dataclass(frozen=True)
class Value:
    """What a step makes. width: its channels. form: "full", "row" with one channel, "dropped" without that dimension,
    "parts" where only its parts may be used. place: how often convolutions have changed its positions."""

    width: Any
    form: str = "full"
    place: int = 0


class Draft:
    """A spec in the making. kind: "rows" ([batch, features], perhaps with several layers), "groups" (of these, with
    blocks of channels around reductions), "leading", "convolution", "convolutions" (several, perhaps with other
    layers), "images" (without a layer), "bmm"; or any.
    """

    def __init__(self, seed: int, kind: str) -> None:
        self.random = random.Random(seed)
        self.kind = kind or self.of(*KINDS)
        self.grouped = self.kind == "groups"
        if self.grouped:
            self.kind = "rows"
        self.chain: list[Step] = []
        self.values: list[Value] = []
        self.saved: dict[str, Value] = {}
        self.inputs: dict[str, list[Any]] = {}
        self.masks: set[str] = set()
        self.arguments: dict[str, Step] = {}
        self.outputs: list[str] | None = None
        self.spatial, self.names, self.places = 0, 0, 0
        self.divided_source = False
        self.source = self.begin()

    def of(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def rarely(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}_{self.names}"

    def new_place(self) -> int:
        self.places += 1
        return self.places

    @property
    def now(self) -> Value:
        return self.values[-1] if self.values else self.source

    def add(self, step: Step, made: Value) -> None:
        self.chain.append(step)
        self.values.append(made)

    def save_last(self) -> str:
        """The name of the running value; the first input's where no step is there."""
        if not self.chain:
            return "x"
        if self.chain[-1]["op"] == "chunk":
            return self.chain[-1]["running"]
        if "save" not in self.chain[-1]:
            self.chain[-1]["save"] = self.name("v")
            self.saved[self.chain[-1]["save"]] = self.now
        return self.chain[-1]["save"]

    def begin(self) -> Value:
        self.rows, self.positions = ["batch"], []
        source = Value(self.of(*WIDTHS, *WIDTHS, 24))
        if self.kind == "convolution":
            self.spatial = self.of(1, 2, 2, 3)
            self.positions = ["height", "width", "depth"][: self.spatial]
            self.inputs["x"] = ["batch", source.width, *self.positions]
            transposed = self.of("", "", "_transpose")
            kernel = 3 if transposed else self.of(1, 3)
            made = Value(self.of(*WIDTHS))
            step = {"op": f"conv{transposed}{self.spatial}d", "name": "conv", "out_channels": made.width,
                    "kernel_size": kernel, "padding": kernel // 2}  # fmt: skip
            self.add(step | self.of({}, {}, {"bias": False}), made)
        elif self.kind in ("images", "convolutions"):
            self.spatial = self.of(1, 2, 2, 2, 3)
            self.positions = ["height", "width", "depth"][: self.spatial]
            self.inputs["x"] = ["batch", source.width, *self.positions]
        elif self.kind == "bmm":
            self.rows = ["batch", "positions"]
            self.inputs |= {"x": [*self.rows, source.width], "k": ["batch", "keys", source.width]}
            self.add({"op": "bmm", "input": "k", "transposed": True}, Value("keys"))
        else:
            if self.kind == "leading":
                self.rows = self.of(["batch", "positions"], ["batch", "positions"], ["batch", "heads", "positions"])
            self.inputs["x"] = [*self.rows, source.width]
        if self.rarely(8) and source.width != 24:
            self.divide(source)
        return source

    def divide(self, source: Value) -> None:
        """In front of all else, or behind a layer."""
        if self.chain and self.kind != "convolution":
            return
        if self.kind == "convolution":
            made = self.now
            self.chain[0]["out_channels"] = f"2 * {made.width}"
            self.values[0] = Value(f"2 * {made.width}", "parts")
        elif self.rarely(2) and not self.spatial:
            made = Value(self.of(*WIDTHS))
            self.add({"op": "linear", "name": "proj", "out_features": f"2 * {made.width}"}, Value(0, "parts"))
        else:
            made, self.inputs["x"][1 if self.spatial else -1] = source, f"2 * {source.width}"
            self.divided_source = True
        self.add_parts(made)

    def add_parts(self, made: Value) -> None:
        a, b = self.name("part"), self.name("part")
        step = self.of({"op": "chunk", "parts": [a, b], "running": self.of(a, b)}, {"op": "glu"}, {"op": "swiglu"},
                       {"op": "geglu", "gate": "first"}, {"op": "reglu"})  # fmt: skip
        self.add(step, made)
        if step["op"] == "chunk":
            self.saved |= {a: made, b: made}

    def meets(self, value: Value) -> bool:
        if value.place != self.now.place:
            return False
        if "dropped" in (value.form, self.now.form) or "parts" in (value.form, self.now.form):
            return value == self.now and value.form == "dropped"
        of_rows = "row" in (value.form, self.now.form) and not self.spatial
        return of_rows or value.width == self.now.width

    def channel_dim(self) -> int:
        return 1 if self.spatial else self.of(-1, 1 if self.kind == "rows" else -1)

    def number(self) -> Any:
        if self.rarely(3):
            name = self.of("scale_by", "shift_by")
            self.arguments[name] = {"type": "float", "default": self.of(0.5, 1.5, 2.0)}
            return name
        return self.of(0.5, 2.0, -1.5, 1.25)

    def data(self, name: str, dtypes: tuple[str, ...] = ("float32",)) -> dict[str, Any]:
        """The spec, with what is used declared."""
        read = {step.get(key) for step in self.chain for key in ("value", "from")} | set(self.outputs or ())
        chain = [{key: each for key, each in step.items() if key != "save" or each in read} for step in self.chain]
        taken = {step.get(key) for step in chain for key in ("input", "mask", "target")}
        inputs = {key: shape for key, shape in self.inputs.items() if key == "x" or key in taken}
        words = set(re.findall(r"\w+", repr([*inputs.values(), *(each for step in chain for each in step.values())])))
        dims = {key: size for key, size in SIZES.items() if key in words}
        made = set(re.findall(r"\w+", repr([[step.get("shape"), step.get("normalized_shape")] for step in chain])))
        arguments = {key: {"type": "dim"} for key in dims if key in (*WIDTHS, "keys", *made)}
        arguments |= {key: each for key, each in self.arguments.items() if key in words and "default" not in each}
        arguments |= {key: each for key, each in self.arguments.items() if key in words and "default" in each}
        return {
            "fusegen": 1, "name": name, **({"dims": dims} if dims else {}),
            **({"arguments": arguments} if arguments else {}), "inputs": inputs,
            "dtypes": list(dtypes), "chain": chain, **({"outputs": self.outputs} if self.outputs else {}),
        }  # fmt: skip
