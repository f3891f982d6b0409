"""Modules of several regions whose values are [batch, channels, *positions].

Between regions these are in channels_last, which a convolution takes without a copy, and whose rows
the kernels read and write as they are; or in the format in which the first one came, where no
region takes channels_last alone. What the module returns is in the format that PyTorch's operators
would give it. The region that makes a contiguous result writes it so, where its kernels
do and no other region takes it; else it is copied. So is the gradient of a contiguous input.
"""

from functools import partial

from .memory_formats import (
    as_channels_last,
    as_contiguous,
    is_last,
    is_only_last,
    with_contiguous_gradient,
)
from .regions import FusedRegions
from .stand_in import is_autocast


class FusedImageRegions(FusedRegions):
    """_fusegen_formats: of each result whether it is in channels_last; or the place of the input
    that it begins with, if one decides, and the convolutions from there on: it is, where that or a
    weight is.
    _fusegen_writes: the packages of regions that make results alone, with the place of each; None
    for a layer that takes contiguous images.
    _fusegen_follows: whether values between regions are in the format of the first one.
    _fusegen_images: the first package of a region of images, which has kernels that copy these.
    """

    _fusegen_formats: tuple = ()
    _fusegen_writes: dict = {}
    _fusegen_follows: bool = False
    _fusegen_images: int | None = 0

    def _fusegen_run_regions(self, inputs):
        lasts = [self._fusegen_is_last(inputs, each) for each in self._fusegen_formats]
        inputs = self._fusegen_with_gradients(inputs, lasts)
        run = partial(self._fusegen_run_images, lasts)
        made = self._fusegen_chain(run, *inputs)
        if not isinstance(made, tuple):
            return self._fusegen_in_format(made, lasts[0])
        return tuple(map(self._fusegen_in_format, made, lasts))

    def _fusegen_is_last(self, inputs, known):
        if isinstance(known, bool):
            return known
        place, layers = known
        given = [self._modules[name]._parameters.get("weight") for name in layers]
        given += [] if place is None else [inputs[place]]
        return any(is_last(each) for each in given if each is not None)

    def _fusegen_with_gradients(self, inputs, lasts):
        """The inputs: where an operand makes a result channels_last, it makes gradients so."""
        known = zip(lasts, self._fusegen_formats, strict=True)
        if any(last for last, each in known if not isinstance(each, bool)):
            return inputs
        return [
            with_contiguous_gradient(self._fusegen_image_package(), x)
            if self._fusegen_copies(x) and not (is_last(x) or is_only_last(x))
            else x
            for x in inputs
        ]

    def _fusegen_run_images(self, lasts, part, *inputs):
        name, writes = part._fusegen_package.name, self._fusegen_writes
        if name in writes:
            last = writes[name] is not None and lasts[writes[name]]
        else:
            last = None if self._fusegen_follows else True
        return self._fusegen_run_part(inputs, part, last=last)

    def _fusegen_copies(self, x):
        """Whether `x` has a batch, and kernels that may copy it."""
        package = self._fusegen_package
        is_here = x.device.type == package.device and package.built
        has_kernels = self._fusegen_images is not None
        return has_kernels and is_here and x.dim() == self._fusegen_dimensions.most

    def _fusegen_image_package(self):
        return self._fusegen_package.packages[self._fusegen_images]

    def _fusegen_last(self, x):
        """What a convolution of PyTorch takes: in channels_last, if PyTorch has that format."""
        if x.dim() == 3 or not self._fusegen_copies(x):
            return x
        return as_channels_last(self._fusegen_image_package(), x, x.dtype)

    def _fusegen_contiguous(self, x):
        """What a layer of PyTorch takes that works on contiguous images, and would copy others."""
        if x.is_contiguous() or not self._fusegen_copies(x):
            return x.contiguous()
        return as_contiguous(self._fusegen_image_package(), x)

    def _fusegen_contiguous_gradient(self, x):
        """The result of such a layer: kernels would give it a gradient in channels_last."""
        if not self._fusegen_copies(x):
            return x
        return with_contiguous_gradient(self._fusegen_image_package(), x)

    def _fusegen_shared(self, x):
        """What several regions take in channels_last: each would copy it. Under autocast they do,
        and round."""
        if not self._fusegen_copies(x) or is_autocast(x.device.type):
            return x
        package = self._fusegen_image_package()
        if x.dim() == 3:  # as a convolution has it
            return as_channels_last(package, x.unsqueeze(2), x.dtype).squeeze(2)
        return as_channels_last(package, x, x.dtype)

    def _fusegen_in_format(self, x, last):
        if last or x.is_contiguous():
            return x
        if not self._fusegen_copies(x):
            return x.contiguous() if x.dim() == self._fusegen_dimensions.most else x
        return as_contiguous(self._fusegen_image_package(), x)
