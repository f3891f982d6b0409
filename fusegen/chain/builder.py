"""The running value from the first step of a chain to the last."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fusegen.chain.anchors import Anchor, Contraction
from fusegen.chain.diagnostics import Diagnostics
from fusegen.chain.model import Chain
from fusegen.chain.parts import divide, refuse_multiples, why_not_divided
from fusegen.chain.result import Pool, Result
from fusegen.chain.shape import Role, certain
from fusegen.chain.state import BatchNorm, Dropout, RankStatistics
from fusegen.chain.values import ValuesBuilder
from fusegen.chain.view import shape_text
from fusegen.ir.axes import CHANNEL, ROW, SAMPLE, SAMPLES, Axes, Dim, quotient
from fusegen.ir.functions.normalisation import sync_batch_norm
from fusegen.ir.graph import Node
from fusegen.ir.multiples import part_of
from fusegen.spec.partial import AnySpec
from fusegen.spec.wording import nearest


class ChainBuilder(ValuesBuilder):
    """What a step uses to add itself to the graph."""

    def __init__(self, spec: AnySpec, diagnostics: Diagnostics, training: bool, sync_batch_norm: bool = False) -> None:
        super().__init__(spec, diagnostics)
        self.training = training
        self.sync_batch_norm = sync_batch_norm
        self.anchor: Anchor | None = None
        self.batch_norms: list[BatchNorm] = []
        self.dropouts: list[Dropout] = []
        self.pool: Pool | None = None

    # From the first step to the last

    def start(self) -> Node | None:
        """The running value before the first step; None where that is an anchor, whose result is a leaf."""
        refuse_multiples(self)
        first = self.spec.chain[0] if self.spec.chain else None
        if first is not None and first.anchor:
            return None
        source = self.inputs[0].name if self.inputs else "x"
        if self.positions is not None:
            self.positions.check_symbols(("inputs", source), (self.channels,))
        return self.begin(source)

    def begin(self, name: str) -> Node:
        self._source = self.graph.tensor(name, self.graph.view)
        return self._source

    def contract(self, step: Any, x: Node | None) -> Node:
        """The product of a linear layer with the running value x."""
        self.own(step.name)
        out = self.symbols.size(step.out_features, "out_features")
        if x is not None:
            self.refuse("FG308", "linear can only be the first step of a chain")
            self.channels = None
            return x
        self.symbols.constructed((self.channels,), None)
        self.symbols.constructed((out,), "out_features")
        if out != self.channels:
            self.check_leading((out,))
        source = self.inputs[0].name if self.inputs else "x"
        operand, weight, product = (self.name_of(step.name, key) for key in ("input", "weight", "product"))
        self.places.of.setdefault(step.name, self.diagnostics.place("name"))
        return self.begin_product(
            Contraction(
                name=step.name,
                source=source,
                width=certain(self.channels),
                channels=certain(out),
                operand=operand,
                weight=weight,
                result=product,
                attribute=f"{step.name}.weight",
            )
        )

    def begin_product(self, anchor: Contraction) -> Node:
        self.anchor = anchor
        if self.positions is not None:
            self.positions.check_symbols(("inputs", anchor.source), (anchor.channels,))
        self.channels = anchor.channels
        return self.begin(anchor.result)

    def convolve(self, step: Any, x: Node | None) -> Node:
        """The result of a convolution of the running value x, without its bias."""
        self.own(step.name)
        out = self.symbols.size(step.out_channels, "out_channels")
        if x is not None or self.positions is None:
            self.refuse("FG308", f"{step.op} can only be the first step of a chain")
            self.channels = None
            return x or self.begin("x")
        self.symbols.constructed((self.channels,), None)
        self.symbols.constructed((out,), "out_channels")
        source = self.inputs[0].name if self.inputs else "x"
        self.positions.check_symbols(("inputs", source), (self.channels, out))
        names = [self.name_of(step.name, key) for key in ("weight", "result")]
        self.anchor = self.positions.begin(step, source, (certain(self.channels), certain(out)), names)
        self.places.of.setdefault(step.name, self.diagnostics.place("name"))
        self.shape = self.shape.with_channels(out).with_positions(self.positions.sizes)
        return self.begin(self.anchor.result)

    def divide(self, x: Node, count: int) -> tuple[Node, ...]:
        """The running value x as so many equal parts of its channels, which are the channels from now on."""
        why = why_not_divided(self.spec.chain, self.step)
        if why is not None:
            self.refuse("FG308", why, "op")
            self.channels = None
            return (x,) * count
        channels = None if self.channels is None else part_of(self.channels, count)
        if self.channels is not None and channels is None:
            hint = "a symbol's multiple is written as '2 * hidden'"
            self.refuse("FG303", f"'{self.channels}' channels have no {count} equal parts", "op", hint)
        self.channels = channels
        found, leaves = divide(self.graph, x, count)
        self.parts |= leaves
        return found

    def pass_over(self, written: Any, running: Node | None) -> None:
        """Takes a step that nobody can read for one that makes whatever it says."""
        op = written.get("op") if isinstance(written, dict) else None
        like_linear = not isinstance(op, str) or nearest(op, ["linear"]) or "out_features" in written
        if self.step == 0 and like_linear:
            self.channels = None
        if isinstance(written, dict):
            self.assume([written.get("save"), written.get("parameter")], running)

    def finish(self, result: Node | None) -> Chain:
        further = self.further_results(result or self.graph.tensor("x", self.graph.view))
        if self.training and not self.sync_batch_norm:  # the others have no use for everything
            self.symbols.report_unused(self._saved_by)
        source = self._source or self.begin("x")
        return Chain(
            graph=self.graph,
            training=self.training,
            anchor=self.anchor,
            source=source,
            parts=self.parts,
            shape=self.shape,
            inputs=self.inputs,
            running=self.running,
            result=Result(result or source, self._result_roles(result or source), self.loss, further, self.pool),
            parameters=self.parameters,
            buffers=self.buffers,
            constants=self.constants,
            batch_norms=self.batch_norms,
            dropouts=self.dropouts,
            places=self.places,
        )

    def _result_roles(self, result: Node) -> tuple[Role, ...]:
        """The dimensions of the value at the end."""
        if self.transposed or result.is_full:
            return self.transposed or self.shape.roles
        if result.axes == SAMPLE:
            kept = [Role.ONE] * self.shape.spatial if self.keeps_positions else []
            return (*(role for role in self.shape.roles if role is not Role.POSITION), *kept)
        if self.dropped_channels:
            return tuple(role for role in self.shape.roles if role is not Role.CHANNEL)
        return tuple(Role.ONE if role is Role.CHANNEL else role for role in self.shape.roles)

    # Norms

    def groups(self, value: Dim) -> Dim:
        """The number of groups of a norm: a number, or an argument."""
        if isinstance(value, str) and self.symbols.argument(value, "num_groups", ("int",)) is None:
            return value
        count, channels = self.symbols.typical(value), self.symbols.typical(self.channels)
        if count is not None and channels is not None and count > 0 and channels % count:
            self.refuse("FG304", f"{count} groups do not divide {channels} channels", "num_groups")
        self.places.groups.setdefault(value, self.diagnostics.place("num_groups"))
        return value

    def groups_of_samples(self, groups: Dim) -> Axes:
        """What a norm has one value each of, of so many groups of channels: of a row, of images of an element of the
        batch."""
        return Axes.of(N=SAMPLES, C=groups) if self.shape.spatial else Axes.of("N", C=groups)

    def blocks(self, width: Dim) -> tuple[Dim | None, Dim]:
        """The width of blocks of channels, and how many there are."""
        known = self.symbols.size(width, "width")
        if known is None or self.channels is None:
            return known, 1
        self.symbols.constructed((known,), "width")
        size, channels = self.symbols.typical(known), self.symbols.typical(self.channels)
        if known == self.channels:
            self.refuse("FG304", f"blocks of {known} are all channels: leave the width out", "width")
        elif size is not None and channels is not None and channels % size:
            self.refuse("FG304", f"blocks of {size} do not divide {channels} channels", "width")
        count = quotient(self.channels, known)
        self.places.groups.setdefault(count, self.diagnostics.place("width"))
        return known, count

    def normalized(self, given: Any) -> tuple[Dim | None, ...] | None:
        """The dimensions of a norm's `normalized_shape`, which have to be those of the chain's channels."""
        dims = self.sizes_of(given, "normalized_shape")
        if dims is None:
            return None
        self.symbols.constructed(dims, "normalized_shape")
        wanted = self.trailing or (self.channels,)
        unlike = len(dims) != len(wanted) or any(
            None not in pair and pair[0] != pair[1] for pair in zip(dims, wanted, strict=False)
        )
        if unlike:
            message = f"the norm is over {shape_text(dims)}, and the running value's last dimensions are"
            self.refuse("FG303", f"{message} {shape_text(self.shape.sizes()[-len(dims) :])}", "normalized_shape")
        return dims

    def normalized_positions(self, given: Any) -> None:
        """Refuses a `normalized_shape` that is not the last dimensions of images."""
        dims = self.sizes_of(given, "normalized_shape")
        if dims is None:
            return
        self.symbols.constructed(dims, "normalized_shape")
        own = self.shape.sizes()[1:][-len(dims) :] if dims else ()
        pairs = [(self.symbols.typical(dim), self.symbols.typical(size)) for dim, size in zip(dims, own, strict=False)]
        if not dims or len(own) < len(dims) or any(None not in pair and pair[0] != pair[1] for pair in pairs):
            message = f"the norm is over {shape_text(dims)}, and the running value's dimensions are"
            self.refuse("FG303", f"{message} {shape_text(self.shape.sizes())}", "normalized_shape")

    def update_buffer(self, buffer: Node, value: Node) -> None:
        self.buffers[buffer.name] = replace(self.buffers[buffer.name], update=value)

    def uses_batch_statistics(self, name: str, tracked: bool) -> None:
        self.own(name)
        self.batch_norms.append(BatchNorm(name, tracked))

    def normalise_over_ranks(self, name: str, x: Node, eps: Node) -> Node:
        """xhat by statistics of all ranks, which are leaves."""
        leaves = [self.graph.claim(f"{name}_{each}_of_ranks") for each in ("mean", "variance")]
        mean, variance = (self.graph.tensor(leaf, CHANNEL) for leaf in leaves)
        self.batch_norms[-1] = replace(self.batch_norms[-1], ranks=RankStatistics(name, x, mean, variance))
        return sync_batch_norm(self.graph, x, mean, variance, eps, name)

    def dropout(self, name: str, p: float | str, x: Node, by_sample: bool) -> Node:
        """x with elements dropped, or samples; x itself in evaluation. p: a number or an argument of the module."""
        self.own(name)
        if isinstance(p, str):
            self.symbols.argument(p, "p", ("float",))
        found = Dropout(name, self.name_of(name, "p"), by_sample, self.seed)
        self.owned_constant(name, "p")
        self.dropouts.append(found)
        if not self.training:
            return x
        axes = ROW if by_sample else self.graph.view
        factor = self.graph.draw(found.p, len(self.dropouts) - 1, axes, f"{name}_factor")
        return self.graph.add("mul", x, factor, name=f"{name}_value")
