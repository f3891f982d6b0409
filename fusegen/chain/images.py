"""Which chains are of images: their values are [batch, channels, *positions] for PyTorch, not [..., channels].

A convolution makes such values. Without an anchor the first input has them where it has three dimensions or more and a
step looks at dimension 1, as batch_norm does: then that dimension is the channels for all steps.
"""

from __future__ import annotations

from typing import Any

MOST = 3
"""Dimensions of positions, for which PyTorch has layers."""


def spatial_of(spec: Any) -> int:
    """How many dimensions of positions the values of a chain have; 0 where it is not of images.

    spec: a SpecModel or PartialSpec. A region of another chain has the channels last, as its neighbours.
    """
    if not spec.chain or spec.chain[0] is None:
        return 0
    if spec.chain[0].spatial:
        return spec.chain[0].spatial
    steps = [step for step in spec.chain if step is not None]
    if spec.is_region or any(step.anchor for step in steps) or not any(step.needs_matrix() for step in steps):
        return 0
    first = next(iter(spec.inputs.values()), None)
    return len(first) - 2 if first is not None and 3 <= len(first) <= MOST + 2 else 0


def decider(spec: Any) -> str:
    """The op of the step that makes a chain one of images."""
    first = spec.chain[0]
    return first.op if first.spatial else next(step.op for step in spec.chain if step.needs_matrix())
