"""The base of modules: what runs in a call."""

from torch import Tensor, nn

from ...support.results import result_of
from ...support.stand_in import NO_ROWS, device_type
from ...support.state_names import OriginalNames


class FusedModule(OriginalNames, nn.Module):
    """A chain of operators as fused kernels. What these do not take is a ValueError."""

    _fusegen_loss = None
    _fusegen_transposed = ()  # the result's dimensions, where its rows come behind the channels
    _fusegen_split_always = False  # for tests: split products even where that is slower

    def _fusegen_run(self, *inputs):
        return self._fusegen_run_part(inputs)

    def _fusegen_run_part(self, inputs, part=None, last=None):
        """A call of the module, or of a region of it. last: of images, whether the result is to be
        in channels_last; None: as PyTorch has it."""
        part = part or type(self)
        x, found = inputs[0], NO_ROWS
        operator, device = None, device_type(x) if isinstance(x, Tensor) else None
        if device is None or x.numel() > 0:
            operator, found = part._fusegen_call(self, *inputs, _device=device, _count=True)
        if operator is None:
            raise ValueError(f"{part._fusegen_package.name}: {found.reason}")
        return result_of(self, part, operator, found, inputs, last)
