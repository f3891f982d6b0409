"""Every op that a chain may contain."""

from __future__ import annotations

from fusegen.ops import activations, arithmetic, bounds, convolution, linear, norms, powers, reductions

STEPS = (
    *(*linear.STEPS, *convolution.STEPS, *arithmetic.STEPS, *activations.STEPS),
    *(*bounds.STEPS, *powers.STEPS, *norms.STEPS, *reductions.STEPS),
)
