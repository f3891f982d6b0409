"""Which chains are of images: their values are [batch, channels, *positions] for PyTorch, not [..., channels].

A convolution makes such values. Without an anchor the first input has them where it has three dimensions or more and a
step looks at dimension 1, as batch_norm does: then that dimension is the channels for all steps.
"""

from __future__ import annotations

from typing import Any

from fusegen.chain.symbols import shape_of

MOST = 3
"""Dimensions of positions, for which PyTorch has layers."""


def spatial_of(spec: Any) -> int:
    """How many dimensions of positions the values of a chain have; 0 where it is not of images.

    spec: a SpecModel or PartialSpec. A region of another chain has what that one has.
    """
    if not spec.chain or spec.chain[0] is None:
        return 0
    if spec.chain[0].spatial:
        return spec.chain[0].spatial
    if spec.is_region:
        return spec.spatial_of_region
    steps = [step for step in spec.chain if step is not None]
    if any(step.anchor for step in steps) or not any(step.needs_matrix() for step in steps):
        return 0
    first = next(iter(spec.inputs.values()), None)
    return len(first) - 2 if first is not None and 3 <= len(first) <= MOST + 2 else 0


def spatial_of_values(spec: Any) -> int:
    """The same of a chain whose first convolution may be any step."""
    return spatial_of(spec) or next((step.spatial for step in spec.chain if step is not None and step.spatial), 0)


def decider(spec: Any) -> str:
    """The op of the step that makes a chain one of images."""
    first = spec.chain[0]
    return first.op if first.spatial else next((step.op for step in spec.chain if step.needs_matrix()), first.op)


def with_layers_over_channels(spec: Any) -> Any:
    """A chain of images with a linear layer, as one whose norms and parameters say that they are over the channels.

    The layer is one over the channels, so its neighbours are, too: layer_norm and rms_norm, and parameters [channels].
    """
    spatial = spatial_of_values(spec)
    if not spatial or not any(step.anchor and not (step.spatial or step.in_batches) for step in spec.chain):
        return spec
    steps, by_channel = [], set()
    for step in spec.chain:
        shape = shape_of(spec, getattr(step, "shape", None))
        if not step.anchor and shape is not None and len(shape) == 1 and shape != (1,):
            by_channel.add(step.parameter)
        is_by_channel = not step.anchor and getattr(step, "parameter", None) in by_channel - {None}
        steps.append(step.by_channel(spatial) if is_by_channel else step.over_channels_of_images())
    return spec.model_copy(update={"chain": tuple(steps)})
