"""What a plan consists of. Everything is frozen: a plan is a value that rendering reads."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusegen.chain.model import Chain
from fusegen.chain.result import Pool
from fusegen.ir.axes import Axes, Dim
from fusegen.ir.graph import Draw, Node
from fusegen.plan.programs.units import Unit, unit_of

Role = str
"""Which dtype a tensor has: "activation", "output", "parameter", "accumulator", "count", "index", "tap", "seed",
"mask", "input <name>", or "output <name>", that of a further result. A mask is an input of bool. A count is that of the
batches of running statistics: a kernel that moves them reads it or adds one, by the momentum's sign. An index is the
number of a channel, in int64. A tap says which element of a window was the largest, in a byte. A seed is what dropouts
draw from. "channel" is the role of the numbers of the channels, and "draw" that of the factors of samples that a
dropout draws, which lie nowhere: kernels make them."""


@dataclass(frozen=True)
class Part:
    """The place of a tensor that is a part of another one's channels: its name, which part, of how many."""

    tensor: str
    index: int
    count: int


@dataclass(frozen=True)
class GradientAlias:
    """A tensor whose values another one has, too: its name and its role."""

    name: str
    role: Role


@dataclass(frozen=True)
class Tensor:
    """A buffer that kernels read or write, and the node whose values it holds.

    optional: the pointer may be null (the module lacks the tensor, or nobody wants the result).
    in_product: it is a linear layer's bias, which the library has added already in modes of 16 bits; null there.
    scratch: lives in the workspace, from one kernel of a schedule to a later one.
    gradient_of: the tensor of whose values it has the gradient; empty for all else.
    compact: in memory it has fewer rows than the program: one for a block of rows ("first"), or the same again in each
    block ("last").
    alias_of: of a gradient, the one that comes in or another one with the same values. Where both have one dtype, one
    tensor is both, and no kernel writes this one.
    samples: of a gradient that is a sum for each sample, the input whose rows its own rows are like.
    pool: where in memory it has one element for each window of positions: the result, or the gradient that comes to it.
    taps: of such a gradient, which element of each window was the largest; None of means.
    part: where it lies, if it is a part of another. parts: how many of the chain's channels it has side by side.
    """

    name: str
    node: Node
    role: Role
    optional: bool = False
    in_product: bool = False
    scratch: bool = False
    gradient_of: str = ""
    compact: str = ""
    alias_of: GradientAlias | None = None
    samples: str = ""
    pool: Pool | None = None
    taps: Tensor | None = None
    part: Part | None = None
    parts: int = 1

    @property
    def whole(self) -> Tensor:
        """The tensor that callers have: the one that it is a part of, or itself."""
        if self.part is None:
            return self
        return replace(self, name=self.part.tensor, part=None, parts=self.part.count)

    @property
    def axes(self) -> Axes:
        return self.node.axes

    @property
    def is_full(self) -> bool:
        return self.node.is_full

    @property
    def unit(self) -> Unit:
        """The unit that the tensor has one value for each of."""
        return unit_of(self.axes)


@dataclass(frozen=True)
class Pass:
    """One pass over the elements: what it loads, computes, sums up and stores.

    results: vector values (per channel, row or group) that are computed once the sums of this pass are known.
    """

    loads: tuple[Tensor, ...]
    values: tuple[Node, ...]
    sums: tuple[Node, ...]
    stores: tuple[Tensor, ...]
    results: tuple[Node, ...] = ()
    vector_stores: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class Kernel:
    """One kernel.

    kind: its entry in `fusegen.plan.launches.kinds.KERNELS`. vectors: tensors that it reads of a value per channel, row
    or group, or of one. setup: such values that it computes before its first pass. partial_sums: column sums that it
    leaves as one partial result per block. parts: the kernels that an L2-resident kernel does the work of, in order.
    """

    name: str
    kind: str
    vectors: tuple[Tensor, ...]
    setup: tuple[Node, ...]
    passes: tuple[Pass, ...]
    partial_sums: tuple[Node, ...] = ()
    purpose: str = ""
    parts: tuple[Kernel, ...] = ()

    @property
    def reads(self) -> tuple[Tensor, ...]:
        return _unique((*(t for p in self.passes for t in p.loads), *self.vectors))

    @property
    def counts(self) -> tuple[Tensor, ...]:
        """The counts of batches that it adds one to: those of the running statistics that it moves."""
        return tuple(t for t in self.vectors if t.role == "count")

    @property
    def writes(self) -> tuple[Tensor, ...]:
        return _unique((*(t for p in self.passes for t in (*p.stores, *p.vector_stores)), *self.counts))

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every value that it computes, once, in the order of its passes."""
        every = [*self.setup, *(n for p in self.passes for n in (*p.values, *p.sums, *p.results))]
        return tuple(dict.fromkeys(every))


@dataclass(frozen=True)
class Schedule:
    """Kernels that compute a program in order. kind: "row" and "column" are persistent, their data stays in
    registers or shared memory, that of "l2" in the L2. operations: of arithmetic for each element, see
    fusegen.plan.schedules.cost."""

    kind: str
    kernels: tuple[Kernel, ...]
    reason: str
    operations: float


@dataclass(frozen=True)
class Phase:
    """Reductions to the same axes that do not depend on each other."""

    axes: Axes
    sums: tuple[Node, ...]

    @property
    def unit(self) -> Unit:
        """The unit that the sums have one value for each of."""
        return unit_of(self.axes)


@dataclass(frozen=True)
class Program:
    """One direction of one variant of a chain, after its contraction.

    phases: the reductions that full-size results or other reductions wait for, in order. terminal: sums of columns that
    nothing of the kind waits for, which the last pass takes. scalar_sums: of all channels. first_resident: the phase
    from which on persistent kernels may cache elements; the number of phases where none may.

    draws: what its dropouts draw.

    schedules: alternatives, the launcher takes the first that is eligible; the last fits every size.
    scalar_reductions: kernels for scalar results, run after any schedule. rewrites: those that its graph went through.
    contiguous_layout: the full-size tensors that may be [batch, channels, positions], all or none of them in a call.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    constants: tuple[str, ...]
    schedules: tuple[Schedule, ...]
    scalar_reductions: tuple[Kernel, ...]
    groups: Dim | None
    reasons: tuple[str, ...]
    phases: tuple[Phase, ...] = ()
    terminal: tuple[Node, ...] = ()
    scalar_sums: tuple[Node, ...] = ()
    first_resident: int = 0
    rewrites: tuple[str, ...] = ()
    contiguous_layout: tuple[str, ...] = ()
    draws: tuple[Node, ...] = ()

    @property
    def given(self) -> tuple[Tensor, ...]:
        """The inputs as a caller has them: tensors with parts are one."""
        return _unique(tuple(tensor.whole for tensor in self.inputs))

    @property
    def made(self) -> tuple[Tensor, ...]:
        """The outputs, likewise."""
        return _unique(tuple(tensor.whole for tensor in self.outputs))

    @property
    def full_outputs(self) -> tuple[Tensor, ...]:
        return tuple(tensor for tensor in self.outputs if tensor.is_full)

    @property
    def samples(self) -> tuple[str, ...]:
        """The inputs whose gradients are sums for each sample."""
        return tuple(tensor.samples for tensor in self.outputs if tensor.samples)

    @property
    def pool(self) -> Pool | None:
        """The windows of positions by which it stores its result, or reads the gradient that comes to it."""
        return next((tensor.pool for tensor in (*self.inputs, *self.outputs) if tensor.pool), None)

    @property
    def of_samples(self) -> bool:
        """Whether elements or reductions need values of samples."""
        units = (*(tensor.unit for tensor in self.inputs), *(phase.unit for phase in self.phases))
        return any(unit.of_samples for unit in units)

    @property
    def terminal_unit(self) -> Unit | None:
        """The unit of the last pass: SAMPLE where some of its sums are of samples; None without sums."""
        units = {unit_of(node.axes) for node in self.terminal}
        return Unit.SAMPLE if Unit.SAMPLE in units else Unit.CHANNEL if units else None

    @property
    def draws_samples(self) -> bool:
        """Whether some dropout draws for each sample."""
        return any(not node.is_full for node in self.draws)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(kernel for schedule in self.schedules for kernel in schedule.kernels) + self.scalar_reductions


@dataclass(frozen=True)
class FurtherResult:
    """A result besides the one at the end. saved: its name in the spec. gradient: of the one that comes to it."""

    saved: str
    tensor: Tensor
    gradient: str


@dataclass(frozen=True)
class Variant:
    """One behaviour of the module: "train", "eval", or "" where both are the same.

    result, result_gradient: the names of the chain's result and of the gradient that comes to it: `y` and `grad_y`,
    unless the spec calls something else so. further: the other results, in their order. chunk: the result and its
    gradients in one program, for the loss of some rows at a time. overwrites_product: whether the backward program may
    write the gradient of the contraction's result over the result.
    """

    name: str
    chain: Chain
    forward: Program
    backward: Program
    saved: tuple[Tensor, ...]
    needs_source: bool
    result: str
    result_gradient: str
    further: tuple[FurtherResult, ...] = ()
    chunk: Program | None = None
    overwrites_product: bool = False

    @property
    def programs(self) -> tuple[Program, ...]:
        return (self.forward, self.backward, *([self.chunk] if self.chunk else ()))

    @property
    def results(self) -> tuple[str, ...]:
        """The names of all results, the one at the end first."""
        return (self.result, *(each.tensor.name for each in self.further))

    @property
    def result_gradients(self) -> tuple[str, ...]:
        """The names of the gradients of `results`, in the order of these."""
        return (self.result_gradient, *(each.gradient for each in self.further))

    @property
    def has_contiguous_layout(self) -> bool:
        """Whether its ops take and return contiguous tensors of a convolution's shape, besides channels_last ones."""
        return bool(self.forward.contiguous_layout)

    @property
    def of_samples(self) -> bool:
        """Whether some values of its programs are those of samples."""
        return self.forward.of_samples or self.backward.of_samples

    @property
    def gradients(self) -> dict[str, Tensor]:
        """The gradients that the backward program makes, by the name of the tensor whose gradient each is."""
        return {tensor.gradient_of: tensor for tensor in self.backward.made}


@dataclass(frozen=True)
class Mode:
    """The dtypes of one instantiation: index is what the launchers take. roles maps each role to a dtype.

    autocast: for calls under autocast. plain: for calls without it. Both, where autocast changes none of the dtypes.
    """

    index: int
    name: str
    roles: dict[Role, str]
    autocast: bool
    plain: bool


def draw_of(node: Node) -> Draw:
    """The distribution that a leaf "draw" has as its attribute."""
    assert isinstance(node.attribute, Draw)
    return node.attribute


def _unique(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple({tensor.name: tensor for tensor in tensors}.values())
