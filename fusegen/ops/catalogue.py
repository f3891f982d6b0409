"""Every op that a chain may contain."""

from __future__ import annotations

from fusegen.ops import activations, arithmetic, linear, norms

STEPS = (*linear.STEPS, *arithmetic.STEPS, *activations.STEPS, *norms.STEPS)
