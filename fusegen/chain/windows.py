"""How many windows there are along a dimension of positions, as PyTorch's convolutions and pooling have it."""

from __future__ import annotations

from collections.abc import Sequence


def extent(size: int, kernel: int, stride: int, padding: int, dilation: int, *, ceil_mode: bool = False) -> int:
    """The positions behind windows, as torch.nn.MaxPool2d says; less than one where the kernel is beyond the positions.

    ceil_mode: a last window may begin within the positions or the padding in front of them, and end behind all.
    """
    reach = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (reach + (stride - 1 if ceil_mode else 0)) // stride + 1
    return count - 1 if ceil_mode and (count - 1) * stride >= size + padding else count


def extent_transposed(size: int, kernel: int, stride: int, padding: int, dilation: int, output_padding: int) -> int:
    """The positions of which windows make so many, as torch.nn.ConvTranspose2d says."""
    return (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1 + output_padding


def positions_of(given: Sequence[int], options: Sequence[Sequence[int]], transposed: bool) -> tuple[int, ...]:
    """The positions behind a convolution. options: kernel size, stride, padding, dilation and output padding, each with
    an entry for each dimension of positions."""
    found = []
    for size, kernel, stride, padding, dilation, output_padding in zip(given, *options, strict=True):
        if transposed:
            found.append(extent_transposed(size, kernel, stride, padding, dilation, output_padding))
        else:
            found.append(extent(size, kernel, stride, padding, dilation))
    return tuple(found)
