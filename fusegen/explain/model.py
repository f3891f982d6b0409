"""A plan as it is shown: what text, JSON, HTML and SVG are written from.

Bytes are those at `Report.sizes` in `Report.dtype`. Microseconds are estimates of device time, as `Report.estimates`
says. `Report.model_json_schema()` is the schema of `fusegen plan --format json`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

FORMAT_VERSION = 1
Direction = Literal["forward", "backward"]


class Part(BaseModel):
    """A value of the report."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Moved(Part):
    """A tensor that a kernel reads or writes. shape: rows and channels."""

    name: str
    shape: tuple[int, int]
    dtype: str
    bytes: int


class Kernel(Part):
    """One kernel of a schedule."""

    name: str
    kind: str
    purpose: str
    reads: tuple[Moved, ...]
    writes: tuple[Moved, ...]
    bytes: int
    microseconds: float


class Schedule(Part):
    """Kernels that compute a program. reason: why it is there.

    runs: whether launchers take it at these sizes; None where nobody knows. decision, estimate: what they say
    of it, and the figure that they compare.
    """

    kind: str
    reason: str
    bytes: int
    times_floor: float
    operations: float
    microseconds: float
    kernels: tuple[Kernel, ...]
    runs: bool | None = None
    decision: str | None = None
    estimate: float | None = None


class Launch(Part):
    """One launch of the schedule that runs, as the launcher says it. passes: the first and the last."""

    kernel: str
    passes: tuple[int, int]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int


class Program(Part):
    """One direction of a variant, after its product. reads, writes: names, with where an input is one.

    taken: the schedule whose bytes and time count: the one that runs, or the first where nobody knows. contiguous: what
    is launched in its place for contiguous tensors behind a convolution, where the kernels take these.
    """

    name: str
    direction: Direction
    floor_bytes: int
    floor_microseconds: float
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    notes: tuple[str, ...]
    schedules: tuple[Schedule, ...]
    taken: str
    launches: tuple[Launch, ...] = ()
    contiguous: tuple[Launch, ...] = ()

    @property
    def schedule(self) -> Schedule:
        """The schedule whose bytes and time count."""
        return next(each for each in self.schedules if each.kind == self.taken)


class Moves(Part):
    """What eager PyTorch moves for one operator in one direction. saved_bytes: what fused kernels do not move of it."""

    bytes: int
    microseconds: float
    saved_bytes: int


class Operator(Part):
    """One step of the chain, which is one operator of eager PyTorch. is_product: it is a linear layer, of which only
    what it does besides its products counts: the gradient of its bias."""

    step: str
    is_product: bool
    forward: Moves
    backward: Moves


class Total(Part):
    """One direction, all operators together.

    besides_bytes: what fused kernels move and eager operators do not. product: the time of the linear layer's product,
    or of both; None where there is none, or its time is not known. made_by: who makes it.
    """

    direction: Direction
    eager_bytes: int
    eager_microseconds: float
    fused_bytes: int
    fused_microseconds: float
    besides_bytes: int
    eager_product: float | None = None
    fused_product: float | None = None
    eager_made_by: str | None = None
    fused_made_by: str | None = None

    @property
    def saved_bytes(self) -> int:
        """What fused kernels move less than eager PyTorch."""
        return self.eager_bytes - self.fused_bytes

    @property
    def eager(self) -> float:
        """Microseconds of eager PyTorch, with the product where its time is known."""
        return self.eager_microseconds + (self.eager_product or 0.0)

    @property
    def fused(self) -> float:
        """Microseconds of the fused module, with the product where its time is known."""
        return self.fused_microseconds + (self.fused_product or 0.0)


class Saved(Part):
    """What the forward pass leaves for the backward pass. bytes: beyond inputs, which are there anyway."""

    name: str
    is_input: bool
    bytes: int
    reason: str


class Variant(Part):
    """One behaviour of the module."""

    name: str
    saved: tuple[Saved, ...]
    programs: tuple[Program, ...]
    operators: tuple[Operator, ...]
    totals: tuple[Total, ...]


class Contraction(Part):
    """The product of a linear layer. by: who makes it, in all dtypes. bias: who adds that."""

    name: str
    in_features: str
    out_features: str
    by: str
    bias: str | None


class Convolution(Part):
    """The convolution in front of the kernels. by: who makes it. memory_format, reason: in which format, and why.
    bias: who adds that."""

    name: str
    in_channels: str
    out_channels: str
    by: str
    memory_format: str
    reason: str
    rows: int
    bias: str | None


class Device(Part):
    """What times are estimated for. Speeds are None where nobody has measured products."""

    name: str
    target: str
    bandwidth_gb_s: float
    float32_tflop_s: float | None
    tensor_core_tflop_s: float | None


class Tuning(Part):
    """What was measured on one GPU: the launch shapes of ranges of rows."""

    measured_on: str
    ranges: tuple[str, ...]


class Report(Part):
    """A plan, as it is shown. chosen: whether launchers chose the schedules, for these sizes. rewrites: the planner's
    algebra that its programs went through. remarks: what keys of the spec cost and save, by these keys. without: what
    the spec switches off of the algebra. dtypes: of each dtype configuration, by what has them."""

    fusegen_plan: int = FORMAT_VERSION
    name: str
    about: str
    targets: tuple[str, ...]
    device: Device
    sizes: dict[str, int]
    shape: str
    dtype: str
    chosen: bool
    chain: tuple[str, ...]
    contraction: Contraction | None
    convolution: Convolution | None
    remarks: dict[str, tuple[str, ...]]
    rewrites: tuple[str, ...]
    without: tuple[str, ...]
    variants: tuple[Variant, ...]
    dtypes: dict[str, dict[str, str]]
    tuning: tuple[Tuning, ...]
    estimates: tuple[str, ...]
