"""Losses: the last step of a chain, with a further input that says what is wanted of each row."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PrivateAttr

from fusegen.chain.builder import ChainBuilder
from fusegen.chain.result import Loss
from fusegen.ir.axes import CHANNEL, Dim
from fusegen.ir.functions import losses
from fusegen.ir.graph import Node
from fusegen.ops import parameters
from fusegen.ops.parameters import Init
from fusegen.ops.step import Step
from fusegen.spec.base import Given, Plain, meaning
from fusegen.spec.names import AttributeName, Identifier


class CrossEntropy(Step):
    """F.cross_entropy with the numbers of channels as its target, an input of int64. Only as the last step. A target
    that is no channel makes its row's loss and gradient NaN, where PyTorch's CUDA kernel stops by an assertion. Of
    values [batch, tokens, channels] it is the loss of all rows, with a target [batch, tokens].

    With `chunk` the result of the linear layer in front never exists as a whole: see docs/losses.md."""

    op: Literal["cross_entropy"]
    target: Annotated[Identifier, meaning("the input that has the number of a channel for each row", "target")]
    reduction: Annotated[
        Literal["none", "mean", "sum"], meaning("of the losses of all rows that are not ignored", "sum")
    ] = "mean"
    ignore_index: Annotated[
        Annotated[int, Field(gt=-(2**24), lt=2**24), Plain("a whole number")],
        meaning("the target of rows without a loss", 0),
    ] = -100
    label_smoothing: Annotated[
        Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), Plain("a number from 0 to 1")],
        meaning("the share that all channels are wanted with", 0.1),
    ] = 0.0
    weight: Annotated[
        Given[Identifier],
        meaning("the input [channels] that has a weight of each channel, by which a mean is divided, too", "weights"),
    ] = None
    buffer: Annotated[
        Given[AttributeName], meaning("the module's buffer [channels] that has them, in place of an input", "weights")
    ] = None
    init: Annotated[
        Given[Init], meaning("what the buffer begins with: a filling, a number or a float argument", "ones")
    ] = None
    z_loss: Annotated[
        Annotated[float, Field(ge=0, allow_inf_nan=False), Plain("a number from 0 on")],
        meaning("how much of log(sum(exp(x)))^2 is added to the loss of a row", 0.0001),
    ] = 0.0
    chunk: Annotated[
        Given[Literal["auto"] | Annotated[int, Field(ge=1), Plain("a number of rows")]],
        meaning("so many rows of the linear layer in front are in memory at a time", "auto", 1024),
    ] = None
    formula = "log(sum(exp(x))) - x[target], by row"
    autocast = "float32"
    needs_elements = True
    passes = 2
    ends_chain = True

    _flattens: bool = PrivateAttr(default=False)

    def needs_matrix(self) -> bool:
        return not self._flattens

    def over_leading_dimensions(self) -> CrossEntropy:
        """Of the rows of all leading dimensions, which PyTorch's function takes as one."""
        made = self.model_copy()
        made._flattens = True
        return made

    def not_over_positions(self) -> None:
        return None

    @property
    def drops_channels(self) -> bool:
        return True

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        if self.z_loss and self._weights:
            chain.refuse("FG205", "z_loss has no weights of classes: leave one of both out", "z_loss")
        if self.weight is not None and self.buffer is not None:
            chain.refuse("FG307", "the weights of classes are an input or a buffer, not both", "buffer")
        if (self.buffer is None) != (self.init is None):
            chain.refuse("FG307", "buffer and init go together", "init" if self.buffer is None else "buffer")
        weight = None if self.weight is None else chain.class_weights(self.weight)
        if self.buffer is not None:
            weight = chain.buffer_of_weights(self.buffer, self.init)
        loss = Loss(self.reduction, self.target, self.ignore_index, self.chunk, self.weight or self.buffer)
        target = chain.target(self.target, loss)
        over = chain.graph.view - CHANNEL
        ignored, smoothing = float(self.ignore_index), self.label_smoothing
        name = f"{self.op}_value"
        return losses.cross_entropy(chain.graph, x, target, over, name, ignored, smoothing, weight, self.z_loss)

    @property
    def _weights(self) -> str:
        """The weights of channels, as an expression of a method; empty where there are none."""
        return self.weight or (f"self.{self.buffer}" if self.buffer else "")

    def construct_own(self, channels: Dim) -> list[str]:
        if self.buffer is None or self.init is None:
            return []
        return [parameters.made(self.buffer, [channels], self.init, learnt=False)]

    def eager(self, x: str) -> str:
        options = [f"weight={self._weights}"] if self._weights else []
        options += [f'reduction="{self.reduction}"'] if self.reduction != "mean" else []
        options += [f"ignore_index={self.ignore_index}"] if self.ignore_index != -100 else []
        options += [f"label_smoothing={self.label_smoothing!r}"] if self.label_smoothing else []
        return f"F.cross_entropy({', '.join([*self._rows(x), *options])})"

    def lines(self, x: str, local: str, spatial: int) -> tuple[list[str], str]:
        result, (rows, target) = self.save or local, self._rows(x)
        lines = [f"{result} = {self.eager(x)}"]
        if self.z_loss:
            counts = f"_counts = {target} != {self.ignore_index}"
            square = f"_square = torch.where(_counts, torch.logsumexp({rows}, dim=1), 0).square()"
            over = {"none": "", "sum": ".sum()", "mean": ".sum() / _counts.sum()"}[self.reduction]
            lines = [counts, square, *lines, f"{result} = {result} + {self.z_loss!r} * _square{over}"]
        if self._flattens and self.reduction == "none":
            lines.append(f"{result} = {result}.view_as({self.target})")
        return lines, result

    def _rows(self, x: str) -> tuple[str, str]:
        """What PyTorch's functions take of values and targets."""
        return (f"{x}.flatten(0, -2)", f"{self.target}.flatten()") if self._flattens else (x, self.target)


STEPS = (CrossEntropy,)
