"""Random chains that PyTorch could run: whatever is refused of them, fusegen lacks.

A seed is a spec. What PyTorch would refuse is not drawn: shapes meet, and names are there before they are used.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.fuzz.convolution_steps import convolution
from tests.fuzz.drafts import WIDTHS, Draft, Step, Value

POINTWISE: tuple[Step, ...] = (
    {"op": "relu"}, {"op": "gelu"}, {"op": "gelu", "approximate": "tanh"}, {"op": "silu"}, {"op": "mish"},
    {"op": "tanh"}, {"op": "sigmoid"}, {"op": "hardswish"}, {"op": "leaky_relu", "negative_slope": 0.1},
    {"op": "hardtanh", "min_val": -2.0, "max_val": 1.5}, {"op": "clamp", "min": -1.0}, {"op": "clamp", "max": 0.75},
    {"op": "clamp", "min": -0.5, "max": 2.0}, {"op": "softplus"}, {"op": "elu"}, {"op": "selu"}, {"op": "relu6"},
    {"op": "square"}, {"op": "abs"}, {"op": "neg"}, {"op": "softsign"}, {"op": "hardsigmoid"}, {"op": "logsigmoid"},
    {"op": "tanhshrink"}, {"op": "celu", "alpha": 0.5}, {"op": "sin"}, {"op": "erf"}, {"op": "hardshrink"},
    {"op": "softshrink"}, {"op": "threshold", "threshold": 0.1, "value": -0.5}, {"op": "cos"}, {"op": "atan"},
    {"op": "asinh"}, {"op": "erfc"}, {"op": "pow", "exponent": 3}, {"op": "hardtanh"}, {"op": "softplus", "beta": 2.0},
)  # fmt: skip
SOFT = ("softmax", "softmax", "log_softmax", "softmin", "normalize")
REDUCTIONS = ("sum", "mean", "max", "min", "amax", "amin", "logsumexp", "var", "std", "norm")


class RandomChain(Draft):
    """A chain of at most so many draws of a step."""

    def __init__(self, seed: int, kind: str = "", most: int = 7) -> None:
        super().__init__(seed, kind)
        self.parameters: dict[str, Any] = {}
        self.left: list[str] = []
        self.groups = self.of(2, 3, "groups") if self.grouped else self.of(1, 2, 3, "groups")
        if self.kind == "convolutions":
            self.of(lambda: None, lambda: None, self.pointwise, self.norm)()
            self.convolve(branch=False)
        for _ in range(self.random.randint(1, most)):
            self.step()
        self.take_all()
        if not self.chain:
            self.pointwise()
        if self.kind == "images":
            self.look_at_channels()
        if self.kind in ("rows", "images") and self.now.form == "full" and not self.outputs and self.rarely(12):
            self.inputs["target"] = ["batch", *self.positions]
            more = self.of({}, {"reduction": "none"}, {"reduction": "sum", "label_smoothing": 0.1})
            self.add({"op": "cross_entropy", "target": "target", **more}, Value(1, "dropped"))
        if self.rarely(6) and not self.outputs:
            last = self.chain[-1].get("save", self.chain[-1].get("running"))
            names = [name for name, value in self.saved.items() if value.form != "dropped" and name != last]
            if names and self.now.form != "dropped":
                self.outputs = ["result", *self.random.sample(names, min(len(names), self.of(1, 1, 2)))]

    def step(self) -> None:
        more = {"rows": [self.linear], "leading": [self.linear, self.trailing], "convolutions": [self.convolve] * 4}
        kinds = [self.pointwise, self.arithmetic, self.norm, self.dropout, self.soft, self.reduction, self.mask]
        kinds += [self.pointwise, self.arithmetic, self.arithmetic, self.gate, self.linear, *more.get(self.kind, [])]
        if self.grouped:
            kinds = [
                self.pointwise,
                self.arithmetic,
                self.group_norm,
                self.group_norm,
                self.norm,
                self.reduce_and_return,
            ]
        before = len(self.chain)
        if str(self.now.width).startswith("2 * ") and self.now.form == "full" and self.rarely(2):
            self.add_parts(replace(self.now, width=str(self.now.width)[4:]))
        else:
            self.of(*kinds)()
        if len(self.chain) == before:
            return
        names = [name for name, value in self.saved.items() if value == self.now]
        if names and self.rarely(14) and len(self.chain) > 1:
            name = self.of(*names)
            self.left.append(self.save_last())
            self.add({"op": "relu", "from": name}, self.now)
        if self.rarely(4):
            self.save_last()

    def pointwise(self) -> None:
        if self.rarely(20) and self.now.form == "full":
            count = self.now.width if self.kind in ("rows", "convolution", "convolutions", "images") else 1
            self.add({"op": "prelu", "name": self.name("act"), "num_parameters": self.of(1, count)}, self.now)
        else:
            self.add(dict(self.of(*POINTWISE)), self.now)

    def look_at_channels(self) -> None:
        """What makes a chain without a layer one of images, if nothing is there that does."""
        deciding = {"batch_norm", "softmax", "log_softmax", "softmin", "normalize", "logsumexp", *REDUCTIONS}
        if not any(step["op"] in deciding or step.get("dim") == 1 for step in self.chain):
            self.chain.insert(0, {"op": "batch_norm", "name": self.name("norm")})
            self.values.insert(0, self.source)

    def arithmetic(self) -> None:
        step: Step = {"op": self.of("add", "add", "mul", "mul", "sub", "minimum", "maximum", "logaddexp")}
        kind = self.of("constant", "constant", "parameter", "value", "value", "input", "input", "again")
        made = self.now
        if kind == "constant":
            step["constant"] = self.number()
            step["op"] = self.of(step["op"], "div")
        elif kind == "parameter" or (kind == "again" and not self.parameters):
            shape = self.of([], [1], *[[self.now.width, *[1] * self.spatial]] * 3)
            if self.now.form != "full" and len(shape) and shape != [1]:
                shape = []
            step |= {"parameter": self.name("p"), "shape": shape, "init": self.of("randn", "ones", 0.5)}
            self.parameters[step["parameter"]] = None if shape in ([], [1]) else self.now.width
        elif kind == "again":
            name = step["parameter"] = self.of(*self.parameters)
            if self.parameters[name] is not None and (self.now.form, self.now.width) != ("full", self.parameters[name]):
                return
        elif kind == "input":
            found = self.further()
            if found is None:
                return
            step["input"], made = found
        else:
            names = [name for name, value in self.saved.items() if self.meets(value)]
            if not names:
                return
            name = step["value"] = self.of(*names)
            made = self.saved[name] if self.now.form == "row" else self.now
        if "constant" not in step and self.rarely(6):
            step |= self.of({"plus": 1}, {"times": -1, "plus": 1}, {"times": 0.5})
        if self.rarely(8) and step["op"] != "div":  # no poles: a comparison says little beside one
            step["swap"] = True
        if self.rarely(20) and ("value" in step or "input" in step):
            step["detach"] = True
        self.add(step, made)

    def further(self, mask: bool = False) -> tuple[str, Value] | None:
        """An input that broadcasts to the running value, and what the two make."""
        rows, width, made = self.rows, self.now.width, self.now
        if self.now.form == "dropped":
            return None
        if self.spatial:
            ones = [1] * self.spatial
            some = [["batch", width, *ones], ["batch", width, *ones], [width, *ones], [1, width, *ones], [1], []]
            full = ["batch", width, *self.positions]
            own = self.kind == "convolution" and "transpose" in self.chain[0]["op"] or self.now.place
            some += [] if own else [full, full, full, ["batch", 1, *self.positions], [1, 1, *self.positions]]
        else:
            some = [[*rows, width], [*rows, width], [*rows, 1], [width], [1], [], [*[1] * len(rows), width]]
            if len(rows) > 1:
                some += [["batch", *[1] * (len(rows) - 1), width], [*rows[1:], width], ["batch", *[1] * len(rows)]]
        shape = self.of(*some)
        if self.now.form == "row" and width in shape:
            made = replace(self.now, width=width, form="full")
        if shape == self.inputs["x"] and not mask and self.rarely(2):
            return "x", made
        for name, known in self.inputs.items():
            if known == shape and name not in ("x", "k") and (name in self.masks) == mask and not self.rarely(3):
                return name, made
        name = self.name("mask" if mask else "given")
        self.inputs[name] = shape
        self.masks |= {name} if mask else set()
        return name, made

    def norm(self) -> None:
        if self.now.form != "full":
            return
        ops = {"rows": ("batch_norm", "batch_norm", "group_norm", "layer_norm", "layer_norm", "rms_norm"),
               "leading": ("layer_norm", "layer_norm", "rms_norm"), "bmm": ("layer_norm", "rms_norm"),
               }.get(self.kind, ("batch_norm", "batch_norm", "batch_norm", "layer_norm", "rms_norm"))  # fmt: skip
        step = {"op": self.of(*ops), "name": self.name("norm"), **self.of({}, {}, {"affine": False})}
        if self.spatial and step["op"] != "batch_norm":
            step["dim"] = 1
        if step["op"] == "group_norm":
            return self.group_norm()
        if step["op"] in ("layer_norm", "rms_norm") and not self.spatial and self.rarely(6):
            step["width"] = 4
        self.add(step, self.now)

    def group_norm(self) -> None:
        if self.now.form == "full":
            step = {"op": "group_norm", "name": self.name("norm"), "num_groups": self.groups}
            if self.groups == "groups":
                self.arguments["groups"] = {"type": "int", "typical": 3}
            self.add(step | self.of({}, {"affine": False}), self.now)

    def reduce_and_return(self) -> None:
        """A value of each row, and with it elements again."""
        if self.now.form == "full" and self.chain:
            name, full = self.save_last(), self.now
            if self.rarely(3):
                self.soft()
            step = {"op": self.of(*REDUCTIONS), "dim": self.channel_dim(), "keepdim": True}
            self.add(step, replace(full, form="row"))
            self.add({"op": self.of("add", "mul", "sub"), "value": name}, full)

    def linear(self) -> None:
        """Behind the running value, a saved one or the first input."""
        if self.now.form != "full" or self.kind in ("convolution", "images", "bmm"):
            return
        source, branch = self.beginning()
        if source is None:
            return
        made = self.of(*WIDTHS, source.width if isinstance(source.width, str) else "features", "2 * hidden")
        if self.rarely(4):
            step = {"op": "matmul", "parameter": self.name("w"), "shape": [source.width, made], "init": "randn"}
            if self.rarely(2):
                step |= {"shape": [made, source.width], "transposed": True}
        else:
            step = {"op": "linear", "name": self.name("fc"), "out_features": made, **self.of({}, {}, {"bias": False})}
        self.add(step | branch, Value(made, place=source.place))

    def beginning(self) -> tuple[Value | None, Step]:
        """What a layer takes: the running value, or in a branch another one; None where that cannot be."""
        names = [name for name, each in self.saved.items() if each.form == "full"]
        if not self.chain or not self.rarely(2):
            return self.now, {}
        name = self.of("x", *names)
        if name == "x" and self.divided_source:
            return None, {}
        self.left.append(self.save_last())
        return self.source if name == "x" else self.saved[name], {"from": name}

    def convolve(self, branch: bool = True) -> None:
        if self.now.form == "full":
            source, begin = self.beginning() if branch else (self.now, {})
            if source is not None:
                step, made = convolution(self, source)
                self.add(step | begin, made)

    def trailing(self) -> None:
        """A norm over several dimensions, and perhaps a parameter or an input of these beside it."""
        if self.now.form != "full" or str(self.now.width).startswith("2 * "):
            return
        shape = [*self.rows[1:][-self.of(1, 2) :], self.now.width]
        step = {"op": self.of("layer_norm", "layer_norm", "rms_norm"), "name": self.name("norm")}
        around = self.of("", "parameter", "input")
        if around == "parameter":
            shapes = (shape, shape, shape[-1:], [*shape[:-1], 1], [1])
            parameter = {"parameter": self.name("p"), "shape": self.of(*shapes), "init": "randn"}
            self.add({"op": self.of("add", "mul"), **parameter}, self.now)
        self.add(step | {"normalized_shape": shape} | self.of({}, {}, {"affine": False}), self.now)
        if around == "input":
            name = self.name("given")
            self.inputs[name] = self.of(shape, ["batch", *[1] * (len(self.rows) - 1), 1], shape[-1:])
            self.add({"op": self.of("add", "mul"), "input": name}, self.now)

    def dropout(self) -> None:
        if self.rarely(2):
            op = self.of("dropout", "dropout", "drop_path")
            self.add({"op": op, "name": self.name("drop"), "p": self.of(0.1, 0.3)}, self.now)

    def soft(self) -> None:
        if self.now.form == "full":
            self.add({"op": self.of(*SOFT), "dim": self.channel_dim()}, self.now)

    def reduction(self) -> None:
        if self.now.form == "full" and self.rarely(2):
            made = replace(self.now, form="dropped" if self.rarely(4) else "row")
            step = {"op": self.of(*REDUCTIONS), "dim": self.channel_dim(), "keepdim": made.form == "row"}
            self.add(step, made)

    def mask(self) -> None:
        if self.now.form == "full" and self.rarely(2):
            name, _ = self.further(mask=True) or ("", None)
            step = self.of({"op": "masked_fill", "constant": self.of(0.0, -10.0)}, {"op": "mul"})
            self.add({**step, "mask": name}, self.now)

    def gate(self) -> None:
        """x * sigmoid(x), x + x and such."""
        if not self.chain or self.now.form == "parts" or self.chain[-1]["op"] == "chunk":
            return
        name = self.save_last()
        if self.rarely(2):
            self.pointwise()
        self.add({"op": self.of("add", "mul", "mul", "sub"), "value": name}, self.now)

    def take_all(self) -> None:
        """Values that a branch has left are added, or returned."""
        read = {step.get(key) for step in self.chain for key in ("value", "from")} | {"x"}
        for name in dict.fromkeys(self.left):
            if name in read:
                continue
            if self.meets(self.saved[name]):
                self.add({"op": self.of("add", "mul"), "value": name}, self.now)
            else:
                self.outputs = [*(self.outputs or ["result"]), name]
