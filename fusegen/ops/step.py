"""What every entry of the catalogue has in common."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from fusegen.chain.builder import ChainBuilder
from fusegen.chain.shape import Shape, Sizes
from fusegen.ir.axes import Dim
from fusegen.ir.graph import Node
from fusegen.spec.base import Given, meaning
from fusegen.spec.names import Identifier

WIDTH = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


_SIZE = "self._fusegen_size_"


def size_text(size: Dim) -> str:
    """A size that a layer's call takes, as an expression of a method: the constructor keeps those of symbols."""
    return str(size) if isinstance(size, int) else f"{_SIZE}{size}"


def kept_sizes(text: str) -> list[str]:
    """The constructor's lines that keep the sizes which methods of this text take."""
    return [f"{_SIZE}{name} = {name}" for name in dict.fromkeys(re.findall(rf"{re.escape(_SIZE)}(\w+)", text))]


@dataclass(frozen=True)
class Dtypes:
    """What decides an eager op's result dtype, besides its running operand.

    activation: what a linear layer's operands have, cast by autocast or not. parameter: the dtype of the module's own
    parameters. autocast: whether CUDA autocast is on. named: the dtypes of the
    inputs and of the values saved so far.
    """

    activation: str
    parameter: str
    autocast: bool
    named: Mapping[str, str]


class Step(BaseModel):
    """One entry of a spec's chain; each subclass is one op of the catalogue.

    formula: the op as `fusegen ops` and docs/spec.md print it; x is the running value. kinks: where the derivative
    jumps or has a pole: values of x, or the keys that hold them, "-key" for minus its value. period: how far apart
    kinks are that repeat without end; 0 where they do not. jumps: whether the value itself jumps at a kink. autocast:
    what PyTorch's autocast does with the op: it leaves it alone, runs it in float32, or in its 16-bit dtype.
    matrix_only: when the input must be [rows, channels], because PyTorch's op on [..., channels] looks at another
    dimension than the last: always, never, or a condition in words, which `needs_matrix` then decides. module: the
    class of the submodule that the op is in the original, if it is one; its attribute is the step's `name`. tensors:
    what that reads of its own. owns: what the ops have of it besides; they call `bn.weight` bn_weight, or so.
    needs_elements: whether the running value must have one value for each row and channel, not one for each row.
    stores_operand: whether the backward pass needs the running value itself, in memory. passes: how many passes over
    all elements it adds to a program, at most.
    anchor: whether its result is the vendor library's or PyTorch's, in front of the kernels.
    has_kernels: whether kernels have it for values [..., channels]; others PyTorch calls, as layers between regions.
    ends_chain: whether nothing can follow it.
    divides: whether it divides the channels into parts.
    draws: whether it draws random numbers in training.
    width_key: the key that says the channels of its result, if a step that PyTorch calls has one.
    width_follows: whether what that key says follows from other sizes.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    formula: ClassVar[str]
    kinks: ClassVar[tuple[float | str, ...]] = ()
    period: ClassVar[float] = 0.0
    jumps: ClassVar[bool] = False
    autocast: ClassVar[Literal["as it is", "float32", "16 bits"]] = "as it is"
    matrix_only: ClassVar[str] = "always"
    module: ClassVar[str] = ""
    tensors: ClassVar[tuple[str, ...]] = ()
    needs_elements: ClassVar[bool] = False
    stores_operand: ClassVar[bool] = False
    passes: ClassVar[int] = 0
    owns: ClassVar[tuple[str, ...]] = ()
    anchor: ClassVar[bool] = False
    has_kernels: ClassVar[bool] = True
    ends_chain: ClassVar[bool] = False
    divides: ClassVar[bool] = False
    draws: ClassVar[bool] = False
    width_key: ClassVar[str] = ""
    width_follows: ClassVar[bool] = True

    if TYPE_CHECKING:
        op: str  # a field of each subclass, with its own names

    save: Annotated[Given[Identifier], meaning("names the result, for a `value` of later steps", "gate")] = None
    from_: Annotated[
        Given[Identifier],
        meaning("a saved value or an input that becomes the running value in front of the step: a branch", "x"),
    ] = Field(default=None, alias="from")

    @classmethod
    def ops(cls) -> tuple[str, ...]:
        """The values of `op` that mean this entry."""
        return get_args(cls.model_fields["op"].annotation)

    @classmethod
    def formula_of(cls, op: str) -> str:
        return cls.formula

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        """Adds the op to the chain's graph and returns its result. Raises StepError."""
        raise NotImplementedError

    def eager(self, x: str) -> str:
        """The op in PyTorch, applied to the expression `x`, inside a method of the module."""
        raise NotImplementedError

    @property
    def saved(self) -> tuple[str, ...]:
        """The names of the values that later steps may take of it."""
        return () if self.save is None else (self.save,)

    @property
    def taken_value(self) -> str | None:
        """The saved value that is an operand."""
        return None

    @property
    def further_values(self) -> tuple[str, ...]:
        """The saved values and inputs that it takes besides, where PyTorch calls it."""
        return ()

    @property
    def is_elementwise(self) -> bool:
        """Whether each element of the result is a function of the running value's, and of what broadcasts to it."""
        if self.module or self.divides or self.draws or self.ends_chain or not self.has_kernels:
            return False
        return not (self.anchor or self.passes or self.stores_operand or self.needs_elements)

    @property
    def is_pointwise(self) -> bool:
        """Whether it is a function of the running value's elements alone, and of numbers."""
        if self.from_ or self.taken_value is not None:
            return False
        return self.is_elementwise and all(getattr(self, key, None) is None for key in ("parameter", "input", "mask"))

    @property
    def running_name(self) -> str | None:
        """The name of its result, if that has one."""
        return self.save

    @property
    def number_of_parts(self) -> int:
        """Into how many parts it divides the channels."""
        return 1

    def lines(self, x: str, local: str, spatial: int) -> tuple[list[str], str]:
        """The op as statements of such a method, and the variable of the result. local: one for a result without a
        name. spatial: how many dimensions of positions the values have."""
        result = self.save or local
        if spatial and self.is_over_channels:
            return [f"{result} = {self.eager(f'{x}.movedim(1, -1)')}.movedim(-1, 1)"], result
        return [f"{result} = {self.eager(x)}"], result

    def construct_own(self, channels: Dim) -> list[str]:
        """Lines of the constructor that make what the op owns; `channels` is the width of the running value.

        `_factory` holds the constructor's device and dtype.
        """
        return []

    def construct_over(self, channels: Dim, spatial: int) -> list[str]:
        """As construct_own(), in a chain whose values have so many dimensions of positions."""
        return self.construct_own(channels)

    def submodule(self, spatial: int) -> str:
        """The class of the op's submodule in such a chain."""
        return self.module

    def groups_of_samples(self, spatial: int) -> Dim | None:
        """Of a norm over the positions of each image: into how many groups it divides the channels. None of a step
        without such."""
        return None

    def is_of_samples(self, spatial: int) -> bool:
        """Whether kernels reduce all positions of each image to one value of each channel, with which a region ends."""
        return False

    def stores_windows(self, spatial: int) -> bool:
        """Whether kernels make one value of each window of positions, with which a region ends."""
        return False

    def ends_region(self, spatial: int) -> bool:
        """Whether kernels give its result other positions than the running value has."""
        return self.is_of_samples(spatial) or self.stores_windows(spatial)

    @property
    def spatial(self) -> int:
        """How many dimensions of positions the values behind it have, as a convolution says."""
        return 0

    def is_of(self, spatial: int) -> bool:
        """Whether it takes values with so many dimensions of positions."""
        return self.spatial in (0, spatial)

    def is_called(self, spatial: int) -> bool:
        """Whether PyTorch calls it where values have so many dimensions of positions."""
        return not self.has_kernels

    def is_over_last(self, spatial: int) -> bool:
        """Whether it is over the last dimensions of images with so many dimensions of positions, and over no other, so
        that kernels have it of rows of these; `wanted_dimensions` says how many they are."""
        return False

    def over_rows(self) -> Step:
        """The step as it is where values are rows of these dimensions."""
        return self

    def needs_batch(self, spatial: int) -> bool:
        """Whether a call by PyTorch takes dimension 0 for the batch, and no other dimensions than the spec has."""
        return self.is_called(spatial)

    def check_call(self, chain: ChainBuilder) -> None:
        """Refuses a call by PyTorch of the chain's running value that would fail."""

    def shape_behind(self, shape: Shape, sizes: Sizes) -> Shape | None:
        """The shape of its result for a running value of a shape, whose channels are already those of the result of a
        layer in front of kernels; None where there is no result, or nobody can tell."""
        return shape

    @property
    def result_width(self) -> Dim | None:
        """The channels of the result of a step that PyTorch calls, where the spec says them."""
        return None

    def spatial_behind(self, spatial: int) -> int:
        """How many dimensions of positions its result has where the running value has so many."""
        return spatial

    def keeps_format(self, spatial: int) -> bool:
        """Whether the result is in channels_last where the input is, of so many dimensions of positions: PyTorch has no
        such format for one, where a layer that it calls makes a contiguous result."""
        return self.spatial != 1

    @property
    def in_batches(self) -> bool:
        """Whether the first input is [batch, rows, channels]."""
        return False

    def not_over_positions(self) -> str | None:
        """Why it cannot be behind a convolution, whose channels are dimension 1; None where it can."""
        if self.matrix_only == "never" and not self.needs_elements:
            return None
        return "its entry does not say what it does over positions"

    def not_over_rows(self) -> str | None:
        """Why it cannot be where values are [..., channels]; None where it can."""
        return None

    @property
    def is_over_channels(self) -> bool:
        """Whether it works on the last dimension, to which the channels of images are moved for it."""
        return False

    def over_leading_dimensions(self) -> Step:
        """The step as it is in a chain of values [..., channels] with more than two dimensions."""
        return self

    def over_channels_of_images(self) -> Step:
        """The step as it is in a chain of images whose layers are over the channels."""
        return self

    def takes_rows(self) -> bool:
        """Whether an op that needs one value for each row and channel also takes [rows, 1]: one channel."""
        return False

    @property
    def is_over_positions(self) -> bool:
        """Whether it says that it takes positions together, or makes some of none."""
        return False

    @property
    def reduces_channels(self) -> bool:
        """Whether the result has one channel, or no dimension for channels."""
        return False

    @property
    def drops_channels(self) -> bool:
        """Whether the result has no dimension for the channels."""
        return False

    def reset(self) -> list[str]:
        """Lines of reset_parameters() that draw anew what the op owns, as `construct_own` drew it."""
        return [f"self.{self.name}.reset_parameters()"] if self.module else []  # type: ignore[attr-defined]

    def refused(self, owner: str, training: bool) -> list[str]:
        """Conditions on the op's constants under which PyTorch raises an error, as Python in a method of the module.

        owner: the variable that holds the op's submodule. training: whether the variant is that of training.
        """
        return []

    def converted(self) -> list[float | str]:
        """The constants that PyTorch converts to the dtype of the tensor, which it refuses to do beyond its range."""
        return []

    def needs_matrix(self) -> bool:
        """Whether the input must be [rows, channels]."""
        return self.matrix_only != "never"

    def result_dtype(self, running: str, dtypes: Dtypes) -> str:
        """The dtype of PyTorch's result for an operand of dtype `running`."""
        if not dtypes.autocast or self.autocast == "as it is":
            return running
        return "float32" if self.autocast == "float32" else dtypes.activation


def promote(left: str, right: str) -> str:
    """torch.promote_types for two floating dtypes."""
    if left == right:
        return left
    if WIDTH[left] == WIDTH[right]:
        return "float32"
    return max(left, right, key=WIDTH.__getitem__)
