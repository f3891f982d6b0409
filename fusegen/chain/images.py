"""Which chains are of images: their values are [batch, channels, *positions] for PyTorch, not [..., channels].

A convolution makes such values. Without an anchor the first input has them where it has three dimensions or more and a
step looks at dimension 1, as batch_norm does: then that dimension is the channels for all steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fusegen.chain.symbols import shape_of
from fusegen.chain.trailing import trailing_dimensions

MOST = 3
"""Dimensions of positions, for which PyTorch has layers."""


def spatial_of(spec: Any) -> int:
    """How many dimensions of positions the values of a chain have; 0 where it is not of images.

    spec: a SpecModel or PartialSpec. A region of another chain has what that one has.
    """
    if not spec.chain or spec.chain[0] is None:
        return 0
    if spec.is_region:
        return spec.spatial_of_region
    if spec.chain[0].anchor and spec.chain[0].spatial:
        return spec.chain[0].spatial
    steps = [step for step in spec.chain if step is not None]
    first = next(iter(spec.inputs.values()), None)
    has_anchor, rank = any(step.anchor for step in steps), len(first or ())
    says = (step.needs_matrix() or (step.spatial > 0 and rank == step.spatial + 2) for step in steps)
    if not any(step.is_over_positions for step in steps) and (has_anchor or not any(says)):
        return 0
    return len(first) - 2 if first is not None and 3 <= len(first) <= MOST + 2 else 0


def spatial_of_values(spec: Any) -> int:
    """The same of a chain whose first convolution, or pooling of two dimensions or three, may be any step. Pooling of
    one beside a linear layer is of features. Rows become images by a step that says of how many positions."""
    of_chain = spatial_of(spec)
    if of_chain or spec.is_region:
        return of_chain
    rank = len(next(iter(spec.inputs.values()), None) or ())
    if rank == 2 and any(step is not None and step.spatial_behind(0) for step in spec.chain):
        return 0
    for step in spec.chain:
        if step is not None and step.spatial and (step.anchor or 1 < step.spatial == rank - 2):
            return step.spatial
    return 0


def spatial_in_front(spec: Any) -> list[int]:
    """How many dimensions of positions the running value has in front of each step. Those that an input has besides
    the first one follow from its shape."""
    running = of_first = spatial_of_values(spec)
    known = {name: min(of_first, max(len(shape or ()) - 2, 0)) for name, shape in spec.inputs.items()}
    known |= dict.fromkeys(list(spec.inputs)[:1], of_first)
    found = []
    for step in spec.chain:
        if step is not None and step.from_ is not None:
            running = known.get(step.from_, running)
        found.append(running)
        if step is not None:
            running = step.spatial_behind(running)
            known.update(dict.fromkeys(step.saved, running))
    return found


def decider(spec: Any) -> str:
    """The op of the step that makes a chain one of images."""
    first = spec.chain[0]
    return first.op if first.spatial else next((step.op for step in spec.chain if step.needs_matrix()), first.op)


def with_leading_dimensions(spec: Any) -> Any:
    """A chain of values [..., channels] with more than two dimensions, whose steps know that.

    spec: a SpecModel or PartialSpec. Where the shape of the first input could be that of images, too, the target of a
    loss tells: it has all dimensions but the channels.
    """
    first = next(iter(spec.inputs.values()), None) or ()
    has_batches = any(step is not None and step.in_batches for step in spec.chain)
    if len(first) < 3 or trailing_dimensions(spec) > 1 or has_batches:
        return spec
    targets = [spec.inputs.get(getattr(step, "target", None)) for step in spec.chain]
    if spatial_of_values(spec) and first[:-1] not in targets:
        return spec
    chain = tuple(step and step.over_leading_dimensions() for step in spec.chain)
    return spec.model_copy(update={"chain": chain}) if hasattr(spec, "model_copy") else replace(spec, chain=chain)


def with_layers_over_channels(spec: Any) -> Any:
    """A chain of images whose parameters [channels] know that they are over the channels, where a step says so.

    A linear layer is one over the channels, so its neighbours are, too: layer_norm and rms_norm, and all parameters
    [channels].
    """
    in_front = spatial_in_front(spec)
    pairs = [*zip(spec.chain, in_front, strict=True)]
    has_layer = any(spatial and step.anchor and not (step.spatial or step.in_batches) for step, spatial in pairs)
    steps, by_channel = [], set()
    for step, spatial in pairs:
        if not spatial:
            steps.append(step)
            continue
        shape = shape_of(spec, getattr(step, "shape", None))
        is_told = has_layer or getattr(step, "dim", None) == 1
        if is_told and not step.anchor and shape is not None and len(shape) == 1 and shape != (1,):
            by_channel.add(step.parameter)
        is_by_channel = not step.anchor and getattr(step, "parameter", None) in by_channel - {None}
        if is_by_channel:
            steps.append(step.by_channel(spatial))
        else:
            steps.append(step.over_channels_of_images() if has_layer else step)
    return spec.model_copy(update={"chain": tuple(steps)})
