"""What a chain returns: the value at the end, the loss that is made of it, and values from before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fusegen.chain.shape import Role
from fusegen.ir.axes import SAMPLE, Dim
from fusegen.ir.graph import Node


@dataclass(frozen=True)
class Loss:
    """What is made of the losses of rows, which are the graph's result. reduction: "none", "mean" or "sum", of those
    whose target is not ignored. target: the input that has the number of a channel for each row. chunk: how many rows
    of the product in front are in memory at a time, or "auto"; None: all. weight: the input that has a weight of each
    channel, or the module's buffer, if there is one: a mean is divided by the weights of the targets."""

    reduction: str
    target: str
    ignored: int
    chunk: int | Literal["auto"] | None = None
    weight: str | None = None


@dataclass(frozen=True)
class Pool:
    """What is stored of the value at the end: one element of each window of positions. name: of the layer. largest:
    whether that is the largest one, or the mean. behind: the positions behind windows, for those in front and what a
    size of the spec stands for; None where nobody can tell."""

    name: str
    largest: bool
    behind: Callable[[Sequence[int], Callable[[Dim], int | None]], tuple[int, ...] | None]


@dataclass(frozen=True)
class Result:
    """What the module returns.

    node: the value at the end. roles: its dimensions. They are those of the chain's values but where a reduction has
    dropped the channels or left a dimension of 1, and where the rows come behind the channels. loss: what is made of a
    value that is a loss of each row. further: what is returned besides, by the names of `save`, in the order of
    `outputs`. pool: of which windows the value is returned.
    """

    node: Node
    roles: tuple[Role, ...]
    loss: Loss | None = None
    further: dict[str, Node] = field(default_factory=dict)
    pool: Pool | None = None

    @property
    def of_rows(self) -> bool:
        """Whether the value at the end has one element for each row."""
        return not self.node.is_full and not self.of_samples

    @property
    def of_samples(self) -> bool:
        """Whether it has one element for each channel of an image."""
        return self.node.axes == SAMPLE

    @property
    def drops_channels(self) -> bool:
        """Whether it has no dimension for the channels: [rows], where else it would be [rows, 1]."""
        return not {Role.CHANNEL, Role.ONE} & {*self.roles}

    @property
    def transposed(self) -> tuple[Role, ...]:
        """Its dimensions where the rows come behind the channels; empty where they do not."""
        if Role.CHANNEL not in self.roles:
            return ()
        return self.roles if Role.ROW in self.roles[self.roles.index(Role.CHANNEL) :] else ()

    @property
    def takes_mean(self) -> bool:
        """Whether the module returns the mean of the losses of rows."""
        return self.loss is not None and self.loss.reduction == "mean"

    @property
    def in_chunks(self) -> bool:
        """Whether the product in front of the loss is made some rows at a time."""
        return self.loss is not None and self.loss.chunk is not None

    @property
    def has_own_loss(self) -> bool:
        """Whether the module makes something of the losses of rows, or makes these some rows at a time."""
        return self.loss is not None and (self.loss.reduction != "none" or self.in_chunks)

    def stored(self, positions: Sequence[int], number: Callable[[Dim], int | None]) -> tuple[int, ...]:
        """The positions of the value at the end, of which there are `positions` in front of its windows."""
        found = None if self.pool is None else self.pool.behind(positions, number)
        return tuple(positions) if found is None else found

    def shape(self, leading: Sequence[Dim], channels: Dim, positions: Sequence[Dim] = ()) -> tuple[Dim, ...]:
        """The shape of what is returned as the value at the end, for these sizes of what the tail's source has:
        [*leading, channels, *positions]. Of several trailing dimensions all but the last count as leading ones."""
        if self.loss is not None and self.loss.reduction != "none":
            return ()
        if self.transposed:
            sizes = {Role.ROW: leading[0], Role.CHANNEL: channels, Role.ONE: 1}
            return tuple(sizes[role] for role in self.transposed)
        if self.of_samples:
            return (*leading, channels, *(1 for role in self.roles if role is Role.ONE))
        own: tuple[Dim, ...] = () if self.drops_channels else (1,) if self.of_rows else (channels,)
        return (*leading, *own, *positions)
