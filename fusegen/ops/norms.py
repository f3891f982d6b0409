"""Normalisation over the rows (batch norm) or over the channels of a row (group, layer and RMS norm)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from fusegen.chain.builder import ChainBuilder
from fusegen.chain.shape import Shape, Sizes
from fusegen.ir.axes import CHANNEL, SAMPLE, SCALAR, Axes, Dim
from fusegen.ir.functions import normalisation
from fusegen.ir.graph import Node
from fusegen.ops.scalars import NotNegative, Positive, scalar_text
from fusegen.ops.step import Step
from fusegen.spec.arguments import Dimension
from fusegen.spec.arguments import Shape as GivenShape
from fusegen.spec.base import Given, meaning
from fusegen.spec.names import AttributeName, Identifier

_LAST = "the norm is over positions, of which the last dimension is one here: 'dim: 1' is the channels"


class Norm(Step):
    """A normalisation kept as a submodule `name`; its eps stays an attribute of that submodule."""

    name: Annotated[AttributeName, meaning("the attribute of the module that holds the norm", "norm")]
    eps: Annotated[NotNegative | Identifier, meaning("what is added to the variance", 1e-3)] = 1e-5
    affine: Annotated[bool, meaning("whether a weight (and a bias) of each channel is learnt", False)] = True
    owns: ClassVar[tuple[str, ...]] = ("eps",)
    needs_elements = True
    passes = 1

    def not_over_positions(self) -> str | None:
        return None

    def eager(self, x: str) -> str:
        return f"self.{self.name}({x})"

    def _affine(
        self,
        chain: ChainBuilder,
        xhat: Node,
        bias: bool = True,
        width: Dim | None = None,
        shape: tuple[Dim | None, ...] | None = None,
    ) -> Node:
        """weight * xhat + bias, as far as the module has them. width: of blocks of channels that share them. shape: of
        both, where it is not that of the channels."""
        if not self.affine:
            return xhat
        sizes, shared = shape or (width or chain.channels,), width is not None
        weight = chain.owned_parameter(self.name, "weight", sizes, CHANNEL, repeated=shared)
        product = chain.graph.add(
            "mul", xhat, weight, name=self.name if not bias else f"{self.name}_scaled", temporary=bias
        )
        if not bias:
            return product
        shift = chain.owned_parameter(self.name, "bias", sizes, CHANNEL, repeated=shared)
        return chain.graph.add("add", product, shift, name=self.name)

    def _eps(self, chain: ChainBuilder) -> Node:
        return chain.owned_scalar(self.eps, self.name, "eps")


class BatchNorm(Norm):
    """nn.BatchNorm1d, nn.BatchNorm2d or nn.BatchNorm3d: per-channel statistics over the rows (and positions) in
    training, running statistics in evaluation."""

    op: Literal["batch_norm"]
    eps: Annotated[Positive | Identifier, meaning("what is added to the variance", 1e-3)] = 1e-5
    momentum: Annotated[
        NotNegative | Identifier | None, meaning("the share of the newest batch; null: the cumulative average", 0.3)
    ] = 0.1
    track_running_stats: Annotated[bool, meaning("false: the batch's statistics in evaluation too", False)] = True
    sync: Annotated[bool, meaning("true: nn.SyncBatchNorm, whose statistics are those of all ranks", True)] = False
    formula = "(x - mean) / sqrt(var + eps) * weight + bias, by channel over the rows"
    module = "nn.BatchNorm1d"
    tensors = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    owns = ("eps", "momentum")

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        eps = self._eps(chain)
        chain.uses_batch_statistics(self.name, self.track_running_stats)
        if chain.sync_batch_norm and self.sync:
            return self._affine(chain, chain.normalise_over_ranks(self.name, x, eps))
        if chain.training or not self.track_running_stats:
            xhat, mean, variance = normalisation.centred(chain.graph, x, CHANNEL, eps, self.name)
            if self.track_running_stats:
                self._update(chain, mean, variance)
        else:
            mean, variance = (chain.buffer(self.name, key) for key in ("running_mean", "running_var"))
            xhat = normalisation.with_given(chain.graph, x, mean, variance, eps, self.name)
        return self._affine(chain, xhat)

    def refused(self, owner: str, training: bool) -> list[str]:
        batch = training or not self.track_running_stats
        conditions = [f"{owner}.eps {'<=' if batch else '<'} 0"]
        if not (training and self.track_running_stats):  # else the kernels take the momentum, as a number
            conditions.append(f"not isinstance({owner}.momentum, (int, float, type(None)))")
        return conditions

    def _update(self, chain: ChainBuilder, mean: Node, variance: Node) -> None:
        """running = (1 - f) running + f batch, with the unbiased variance, as nn.BatchNorm does."""
        graph, name = chain.graph, self.name
        tracked = chain.buffer(name, "num_batches_tracked", SCALAR)
        momentum = chain.owned_scalar(self.momentum, name, "momentum")
        factor = graph.add("average_factor", momentum, tracked, name=f"{name}_factor")
        rest = graph.add("sub", graph.literal(1), factor, name=f"{name}_kept")
        n = normalisation.count(graph, CHANNEL)
        fewer = graph.add("sub", n, graph.literal(1), name="count_less_one", temporary=True)
        bessel = graph.add("div", n, fewer, name=f"{name}_bessel")
        unbiased = graph.add("mul", variance, bessel, name=f"{name}_unbiased", temporary=True)
        for key, batch in (("running_mean", mean), ("running_var", unbiased)):
            running = chain.buffer(name, key)
            old = graph.add("mul", rest, running, name=f"{key}_old", temporary=True)
            new = graph.add("mul", factor, batch, name=f"{key}_new", temporary=True)
            chain.update_buffer(running, graph.add("add", old, new, name=f"new_{running.name}"))

    def submodule(self, spatial: int) -> str:
        if self.sync:
            return "nn.SyncBatchNorm"
        return f"nn.BatchNorm{max(spatial, 1)}d"

    def construct_over(self, channels: Dim, spatial: int) -> list[str]:
        options = [f"eps={scalar_text(self.eps, '')}"]
        options.append(f"momentum={None if self.momentum is None else scalar_text(self.momentum, '')}")
        options += [] if self.affine else ["affine=False"]
        options += [] if self.track_running_stats else ["track_running_stats=False"]
        return [f"self.{self.name} = {self.submodule(spatial)}({channels}, {', '.join(options)}, **_factory)"]


class _OverPositions(Norm):
    """A norm whose statistics are of positions too, where values have some: PyTorch calls it there."""

    def is_called(self, spatial: int) -> bool:
        return spatial > 0

    def keeps_format(self, spatial: int) -> bool:
        return not self.is_called(spatial)

    def check_call(self, chain: ChainBuilder) -> None:
        chain.own(self.name)
        for key in ("eps", "momentum"):
            if isinstance(value := getattr(self, key, None), str):
                chain.symbols.argument(value, key, ("float", "int"))
        self._check_sizes(chain)

    def _check_sizes(self, chain: ChainBuilder) -> None:
        """Refuses what the constructor of the layer lacks, or would refuse."""
        chain.symbols.constructed((chain.channels,), None)


class GroupNorm(Norm):
    """nn.GroupNorm: of images over the positions of each, too."""

    op: Literal["group_norm"]
    num_groups: Annotated[Dimension, meaning("how many groups the channels are divided into", 8)]
    formula = "(x - mean) / sqrt(var + eps) * weight + bias, by row or image over each group of channels"
    autocast = "float32"
    module = "nn.GroupNorm"
    tensors = ("weight", "bias")

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        over = chain.groups_of_samples(chain.groups(self.num_groups))
        xhat, _, _ = normalisation.centred(chain.graph, x, over, self._eps(chain), self.name)
        return self._affine(chain, xhat)

    def groups_of_samples(self, spatial: int) -> Dim | None:
        return self.num_groups if spatial else None

    def construct_own(self, channels: Dim) -> list[str]:
        affine = "" if self.affine else ", affine=False"
        eps = scalar_text(self.eps, "")
        return [f"self.{self.name} = nn.GroupNorm({self.num_groups}, {channels}, eps={eps}{affine}, **_factory)"]


class OverChannels(_OverPositions):
    """A norm over the channels of a row, or over each block of them, such as the heads of an attention."""

    width: Annotated[
        Given[Dimension], meaning("of blocks of channels that are normalised each, by the same weight", "width")
    ] = None
    dim: Annotated[Given[Literal[1]], meaning("1: over the channels of images, which are dimension 1", 1)] = None
    normalized_shape: Annotated[
        Given[Identifier | GivenShape],
        meaning("the last dimensions, normalised together; without it the last one", ["positions", "features"]),
    ] = None
    autocast = "float32"
    matrix_only = "with dim: 1"

    def needs_matrix(self) -> bool:
        return self.dim == 1

    @property
    def is_over_channels(self) -> bool:
        return self.dim == 1

    def over_channels_of_images(self) -> OverChannels:
        return self.model_copy(update={"dim": 1})

    def is_called(self, spatial: int) -> bool:
        return spatial > 0 and not self.is_over_channels

    def is_over_last(self, spatial: int) -> bool:
        return self.is_called(spatial) and self.normalized_shape is not None and self.width is None

    def _check_sizes(self, chain: ChainBuilder) -> None:
        """The last dimensions are of positions."""
        if self.width is not None:
            chain.refuse(
                "FG308", f"{self.op} of blocks of channels is over the last dimension: positions here", "width"
            )
        elif self.normalized_shape is None:
            chain.refuse("FG301", _LAST, None, "'normalized_shape' says the sizes of the last dimensions")
        else:
            chain.normalized_positions(self.normalized_shape)

    def shape_behind(self, shape: Shape, sizes: Sizes) -> Shape | None:
        """None where the last dimensions of images have other sizes than `normalized_shape` says."""
        wanted = self.normalized_shape
        if not self.is_called(shape.spatial) or not isinstance(wanted, tuple):
            return shape
        own = shape.sizes()[-len(wanted) :]
        numbers = [(sizes.number(dim), size and sizes.number(size)) for dim, size in zip(wanted, own, strict=False)]
        return None if any(None not in pair and pair[0] != pair[1] for pair in numbers) else shape

    def over(self, chain: ChainBuilder) -> tuple[Axes, dict[str, Any]]:
        """What there is one value each of that is reduced to, and how the weight lies: the width of a block if there
        are blocks, and its shape where that is given."""
        if self.width is None:
            shape = None if self.normalized_shape is None else chain.normalized(self.normalized_shape)
            return chain.graph.view - CHANNEL, {"shape": shape}
        if self.normalized_shape is not None:
            chain.refuse("FG307", "a norm has either a width or a normalized_shape", "width")
        width, count = chain.blocks(self.width)
        return Axes.of("N", C=count), {"width": width}

    def constructed_shape(self, channels: Dim) -> Dim:
        """What the submodule's constructor takes as its normalized_shape."""
        if self.normalized_shape is None or isinstance(self.normalized_shape, str):
            return self.normalized_shape or self.width or channels
        return f"({', '.join(map(str, self.normalized_shape))}{',' if len(self.normalized_shape) == 1 else ''})"

    def eager(self, x: str) -> str:
        if self.width is None:
            return super().eager(x)
        return f"self.{self.name}({x}.unflatten(-1, (-1, self.{self.name}.normalized_shape[0]))).flatten(-2)"


class LayerNorm(OverChannels):
    """nn.LayerNorm over the channels."""

    op: Literal["layer_norm"]
    bias: Annotated[bool, meaning("whether an affine norm has a bias", False)] = True
    formula = "(x - mean) / sqrt(var + eps) * weight + bias, by row"
    module = "nn.LayerNorm"
    tensors = ("weight", "bias")

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        over, lies = self.over(chain)
        xhat, _, _ = normalisation.centred(chain.graph, x, over, self._eps(chain), self.name)
        return self._affine(chain, xhat, self.bias, **lies)

    def construct_own(self, channels: Dim) -> list[str]:
        options = [f"eps={scalar_text(self.eps, '')}"]
        options += [] if self.affine else ["elementwise_affine=False"]
        options += [] if self.bias else ["bias=False"]
        return [
            f"self.{self.name} = nn.LayerNorm({self.constructed_shape(channels)}, {', '.join(options)}, **_factory)"
        ]


class RmsNorm(OverChannels):
    """nn.RMSNorm over the channels. It has no bias."""

    op: Literal["rms_norm"]
    eps: Annotated[
        NotNegative | Identifier | None,
        meaning("what is added to the mean square; null: the least that counts beside 1 in the dtype", 1e-3),
    ] = 1e-5  # type: ignore[assignment]
    formula = "x / sqrt(mean(x^2) + eps) * weight, by row"
    module = "nn.RMSNorm"
    tensors = ("weight",)

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        over, lies = self.over(chain)
        xhat = normalisation.uncentred(chain.graph, x, over, self._eps(chain), self.name)
        return self._affine(chain, xhat, bias=False, **lies)

    def construct_own(self, channels: Dim) -> list[str]:
        affine = "" if self.affine else ", elementwise_affine=False"
        eps = None if self.eps is None else scalar_text(self.eps, "")
        return [f"self.{self.name} = nn.RMSNorm({self.constructed_shape(channels)}, eps={eps}{affine}, **_factory)"]


class InstanceNorm(_OverPositions):
    """nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d of images; of rows each as a picture of one line, without
    running statistics: layer_norm without a weight, which has another name in some modules."""

    op: Literal["instance_norm"]
    affine: Annotated[bool, meaning("of images, whether a weight and a bias are learnt", True)] = False
    momentum: Annotated[
        NotNegative | Identifier | None, meaning("the share of the newest batch in running statistics", 0.3)
    ] = 0.1
    track_running_stats: Annotated[bool, meaning("of images, whether evaluation has running statistics", True)] = False
    formula = "(x - mean) / sqrt(var + eps), by row; of images by channel over the positions of each"
    module = "nn.InstanceNorm2d"
    tensors = ("weight", "bias", "running_mean", "running_var")

    def is_called(self, spatial: int) -> bool:
        return spatial > 0 and self.track_running_stats

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        if chain.shape.spatial:
            return self._affine(chain, normalisation.centred(chain.graph, x, SAMPLE, self._eps(chain), self.name)[0])
        for key in ("affine", "track_running_stats"):
            if getattr(self, key):
                chain.refuse("FG308", f"instance_norm of rows has no '{key}': it is of images", key)
        if isinstance(self.momentum, str):
            chain.symbols.argument(self.momentum, "momentum", ("float", "int"))
        over = chain.graph.view - CHANNEL
        return normalisation.centred(chain.graph, x, over, self._eps(chain), self.name)[0]

    def lines(self, x: str, local: str, spatial: int) -> tuple[list[str], str]:
        result = self.save or local
        rows = f"self.{self.name}({x}[:, None, None])[:, 0, 0]"
        return [f"{result} = {self.eager(x) if spatial else rows}"], result

    def refused(self, owner: str, training: bool) -> list[str]:
        return [f"{owner}.track_running_stats"]

    def submodule(self, spatial: int) -> str:
        return f"nn.InstanceNorm{spatial or 2}d"

    def construct_over(self, channels: Dim, spatial: int) -> list[str]:
        options = [f"eps={scalar_text(self.eps, '')}"]
        options.append(f"momentum={None if self.momentum is None else scalar_text(self.momentum, '')}")
        options += ["affine=True"] if self.affine else []
        options += ["track_running_stats=True"] if self.track_running_stats else []
        return [f"self.{self.name} = {self.submodule(spatial)}({channels}, {', '.join(options)}, **_factory)"]


STEPS = (BatchNorm, GroupNorm, LayerNorm, RmsNorm, InstanceNorm)
