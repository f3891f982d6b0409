"""Every op that a chain may contain."""

from __future__ import annotations

from fusegen.ops import (
    activations,
    arithmetic,
    bounds,
    convolution,
    dropout,
    linear,
    losses,
    masks,
    norms,
    parts,
    powers,
    reductions,
    rounding,
    thresholds,
    transcendental,
)

STEPS = (
    *(*linear.STEPS, *convolution.STEPS, *parts.STEPS, *arithmetic.STEPS, *activations.STEPS, *thresholds.STEPS),
    *(*bounds.STEPS, *rounding.STEPS, *powers.STEPS, *transcendental.STEPS, *masks.STEPS),
    *(*norms.STEPS, *reductions.STEPS, *losses.STEPS, *dropout.STEPS),
)
