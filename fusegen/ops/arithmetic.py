"""Ops of two operands: the running value and a parameter, a constant, an earlier value or a further input."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import PrivateAttr

from fusegen.chain.builder import ChainBuilder
from fusegen.chain.diagnostics import StepError
from fusegen.ir.axes import SCALAR, Dim
from fusegen.ir.graph import Node
from fusegen.ops import parameters
from fusegen.ops.parameters import Init
from fusegen.ops.scalars import Scalar, scalar_text
from fusegen.ops.step import Dtypes, Step, promote
from fusegen.spec.arguments import InputShape
from fusegen.spec.base import Given, meaning
from fusegen.spec.names import AttributeName, Identifier
from fusegen.spec.wording import alternatives

_OPERANDS = ("parameter", "constant", "value", "input", "mask")
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
# Of a parameter: with the numbers that they take, and as PyTorch has them.
FUNCTIONS = {
    "exp": ((), "torch.exp({0})"),
    "sigmoid": ((), "torch.sigmoid({0})"),
    "tanh": ((), "torch.tanh({0})"),
    "softplus": ((1, 20), "F.softplus({0})"),
}
_FORMULAS = {
    "logaddexp": "log(exp(x) + exp(operand))",
    "hypot": "sqrt(x^2 + operand^2)",
    "atan2": "the angle from -pi to pi of the point (operand, x)",
}


class Arithmetic(Step):
    """Exactly one of parameter, constant, value, input and mask names the operand. With times and plus it is
    times operand + plus, and with function that of the parameter."""

    op: Literal["add", "sub", "mul", "div", "minimum", "maximum", "logaddexp", "hypot", "atan2"]
    parameter: Annotated[
        Given[AttributeName], meaning("a learnable parameter; used again, it is named without shape and init", "scale")
    ] = None
    shape: Annotated[
        Given[Identifier | InputShape],
        meaning("the parameter's: a list that broadcasts to [rows, channels], or a shape argument", ["hidden"]),
    ] = None
    init: Annotated[
        Given[Init], meaning("what the parameter begins with: a filling, a number or a float argument", "ones")
    ] = None
    learnt: Annotated[bool, meaning("whether gradients flow to the parameter; if not, it is a buffer", False)] = True
    dim: Annotated[
        Given[Literal[1]], meaning("1: the parameter [channels] is along the channels of images, dimension 1", 1)
    ] = None
    constant: Annotated[Given[Scalar], meaning("a number, or an argument of the module", 0.5)] = None
    name: Annotated[
        Given[AttributeName], meaning("the attribute of the module that holds a constant given as a number", "factor")
    ] = None
    value: Annotated[Given[Identifier], meaning("the result of an earlier step, by its `save`", "gate")] = None
    input: Annotated[Given[Identifier], meaning("an input of the module", "residual")] = None
    mask: Annotated[Given[Identifier], meaning("an input of bool, which is 1 or 0; of mul", "keep")] = None
    function: Annotated[
        Given[Literal["exp", "sigmoid", "tanh", "softplus"]], meaning("of the parameter, which is the operand", "exp")
    ] = None
    times: Annotated[Given[Scalar], meaning("a factor of the parameter, value or input", -1.0)] = None
    plus: Annotated[Given[Scalar], meaning("what is added to the parameter, value or input", 1.0)] = None
    swap: Annotated[bool, meaning("exchanges the operands", True)] = False
    detach: Annotated[bool, meaning("no gradient flows into the value or input", True)] = False
    matrix_only = "never"

    _spatial: int = PrivateAttr(default=0)

    def needs_matrix(self) -> bool:
        return self.dim == 1

    def by_channel(self, spatial: int) -> Arithmetic:
        """The step with a parameter [channels] that is broadcast to images of so many dimensions of positions."""
        made = self.model_copy()
        made._spatial = spatial
        return made

    @property
    def is_by_channel(self) -> bool:
        return self._spatial > 0

    @classmethod
    def formula_of(cls, op: str) -> str:
        return f"x {_INFIX[op]} operand" if op in _INFIX else _FORMULAS.get(op, f"the {op} of x and operand")

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        self._refuse_keys_of_others(chain)
        operand = self._operand(chain)
        if self.detach:
            operand = chain.graph.add("detach", operand, name=f"{operand.name}_detached")
        if self.function is not None:
            numbers = map(chain.graph.literal, FUNCTIONS[self.function][0])
            name = f"{operand.name}_{self.function}"
            operand = chain.graph.add(self.function, operand, *numbers, name=name, temporary=True)
        if self.times is not None:
            factor = chain.scalar(self.times, "times")
            operand = chain.graph.add("mul", operand, factor, name=f"{operand.name}_scaled", temporary=True)
        if self.plus is not None:
            offset = chain.scalar(self.plus, "plus")
            operand = chain.graph.add("add", operand, offset, name=f"{operand.name}_shifted", temporary=True)
        left, right = (operand, x) if self.swap else (x, operand)
        if self.op == "div" and right.axes == SCALAR and right.op in ("scalar", "literal"):
            # As PyTorch's CUDA kernel does.
            return chain.graph.add("mul", left, chain.inverse(right, "constant"), name=self._result_name())
        return chain.graph.add(self.op, left, right, name=self._result_name())

    def _refuse_keys_of_others(self, chain: ChainBuilder) -> None:
        """Exactly one operand, and only the keys that go with it."""
        given = [key for key in _OPERANDS if getattr(self, key) is not None]
        if not given:
            raise StepError("FG307", f"{self.op} needs an operand: {alternatives(_OPERANDS)}")
        for key in given[1:]:
            chain.refuse("FG307", f"{self.op} takes one operand, not both {given[0]} and {key}", key)
        if self.mask is not None and self.op != "mul":
            chain.refuse("FG307", f"mask goes with mul and masked_fill, not with {self.op}", "mask")
        keys = {"shape": self.shape is not None, "init": self.init is not None, "detach": self.detach}
        keys |= {
            "learnt": not self.learnt,
            "dim": self.dim is not None,
            "function": self.function is not None,
            "times": self.times is not None,
            "plus": self.plus is not None,
        }
        own, numbers = ["parameter"], ["parameter", "value", "input"]
        owned = {"shape": own, "init": own, "dim": own, "function": own, "detach": ["value", "input"]}
        owned |= {"times": numbers, "plus": numbers, "learnt": own}
        for key, owners in owned.items():
            if keys[key] and not set(owners) & set(given):
                chain.refuse("FG307", f"{key} goes with {alternatives(owners)}, not with {given[0]}", key)
        if self.dim is not None and isinstance(self.shape, tuple | list) and len(self.shape) != 1:
            chain.refuse("FG307", "dim goes with a shape of one dimension, the channels", "dim")
        if self.name is not None and not isinstance(self.constant, int | float):
            chain.refuse("FG307", "name goes with a constant that is given as a number", "name")

    def _operand(self, chain: ChainBuilder) -> Node:
        """The operand; of several that were given, each is looked up."""
        found = []
        if self.parameter is not None:
            found.append(chain.parameter(self.parameter, self.shape, self.init, self.learnt))
        if self.constant is not None:
            found.append(chain.constant(self.constant, self.name))
        if self.value is not None:
            found.append(chain.value(self.value))
        if self.input is not None:
            found.append(chain.input(self.input))
        if self.mask is not None:
            found.append(chain.input(self.mask, "mask"))
        return found[0]

    @property
    def taken_value(self) -> str | None:
        return self.value

    def _result_name(self) -> str:
        past = {"add": "sum", "sub": "difference", "mul": "product", "div": "quotient"}
        about = self.parameter or self.name or (self.constant if isinstance(self.constant, str) else None) or self.value
        verb = {"add": "plus", "sub": "minus", "mul": "times", "div": "over"}.get(self.op, self.op)
        return f"{verb}_{about}" if about else past.get(self.op, f"{self.op}_value")

    def construct_own(self, channels: Dim) -> list[str]:
        if self.name is not None:
            assert isinstance(self.constant, int | float)
            return [f"self.{self.name} = {float(self.constant)!r}"]
        if self.parameter is None or self.shape is None or self.init is None:
            return []
        return [parameters.made(self.parameter, self.shape, self.init, self.learnt)]

    def reset(self) -> list[str]:
        if self.parameter is None or self.init is None or not self.learnt:
            return []
        return [parameters.drawn(self.parameter, self.init)]

    def eager(self, x: str) -> str:
        operand = self.value or self.input or self.mask
        if self.parameter is not None:
            operand = f"self.{self.parameter}" + (f"[:{', None' * self._spatial}]" if self._spatial else "")
            operand = FUNCTIONS[self.function][1].format(operand) if self.function else operand
        elif self.constant is not None:
            operand = f"self.{self.name}" if self.name else scalar_text(self.constant)
        if self.detach:
            operand = f"{operand}.detach()"
        if self.times is not None:
            operand = f"{operand} * {scalar_text(self.times)}"
        if self.plus is not None:
            operand = f"{operand} + {scalar_text(self.plus)}"
        if self.op in _INFIX:
            if self.times is not None or self.plus is not None:
                operand = f"({operand})"
            return f"{operand} {_INFIX[self.op]} {x}" if self.swap else f"{x} {_INFIX[self.op]} {operand}"
        if self.constant is not None:
            operand = f"{x}.new_full((), {operand})"
        return f"torch.{self.op}({operand}, {x})" if self.swap else f"torch.{self.op}({x}, {operand})"

    def converted(self) -> list[float | str]:
        if self.constant is None or self.op in _INFIX:
            return []
        return [self.name or self.constant]

    def result_dtype(self, running: str, dtypes: Dtypes) -> str:
        if self.parameter is not None:
            # A parameter without dimensions takes part in promotion like a Python number, but for autocast, which
            # casts the operands of atan2 to one dtype.
            as_number = dtypes.named.get(f"rank of {self.parameter}") == "0"
            if as_number and not (dtypes.autocast and self.op == "atan2"):
                return running
            return promote(running, dtypes.parameter)
        if dtypes.autocast and self.op == "div" and self.swap and self.constant is not None:
            return (
                "float32"  # PyTorch computes number / tensor as the tensor's reciprocal, which autocast runs in float32
            )
        other = self.value or self.input
        if other is None or (dtypes.named.get(f"rank of {other}") == "0" and self.op != "atan2"):
            return running
        return promote(running, dtypes.named[other])


STEPS = (Arithmetic,)
