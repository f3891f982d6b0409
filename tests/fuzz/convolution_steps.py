"""A convolution of a random chain that has several."""

from __future__ import annotations

from typing import Any

from tests.fuzz.drafts import SIZES, WIDTHS, Step, Value


def convolution(draft: Any, source: Value) -> tuple[Step, Value]:
    """Of a value, and what it makes. It keeps the positions, or halves or doubles them."""
    width, kernel, stride = draft.of(*WIDTHS, source.width), draft.of(1, 1, 3, 3), draft.of(1, 1, 1, 2)
    transposed = stride == 2 and draft.rarely(2)
    if transposed:
        kernel = 2
    step: Step = {"op": f"conv{'_transpose' * transposed}{draft.spatial}d", "name": draft.name("conv"),
                  "out_channels": width, "kernel_size": kernel}  # fmt: skip
    step |= {"stride": stride} if stride > 1 else {}
    step |= {"padding": kernel // 2} if kernel == 3 else {}
    step |= draft.of({}, {"bias": False})
    if not transposed and kernel == 3 and draft.rarely(3):
        step |= draft.of({"padding": 2, "dilation": 2}, {"padding_mode": "replicate"}, {"padding_mode": "circular"})
    if width == source.width and width in SIZES and draft.rarely(3):
        step["groups"] = width
    place = source.place if stride == 1 else draft.new_place()
    return step, Value(width, place=place)
