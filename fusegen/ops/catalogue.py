"""Every op that a chain may contain."""

from __future__ import annotations

from fusegen.ops import (
    activations,
    arithmetic,
    bounds,
    casts,
    convolution,
    dimensions,
    dropout,
    joining,
    linear,
    losses,
    masks,
    matmul,
    norms,
    parts,
    plugins,
    pooling,
    powers,
    reductions,
    rounding,
    thresholds,
    transcendental,
    upsampling,
)
from fusegen.ops.step import Step

_OWN: tuple[type[Step], ...] = (
    *(*linear.STEPS, *matmul.STEPS, *convolution.STEPS, *pooling.STEPS, *upsampling.STEPS),
    *(*parts.STEPS, *joining.STEPS, *dimensions.STEPS),
    *(*arithmetic.STEPS, *activations.STEPS, *thresholds.STEPS),
    *(*bounds.STEPS, *rounding.STEPS, *powers.STEPS, *transcendental.STEPS, *masks.STEPS),
    *(*norms.STEPS, *reductions.STEPS, *losses.STEPS, *dropout.STEPS, *casts.STEPS),
)

PLUGINS = plugins.load(_OWN)
STEPS = (*_OWN, *PLUGINS.steps)
