"""The precision of a float32 module's matrix product, and the pieces that fp32_split is made of.

- ieee: PyTorch's own product of float32, by its settings (torch.backends.cuda.matmul).
- fp32_split: each operand as two of fp16, its pieces, whose products tensor cores make.
- bf16, fp16: operands are rounded to that dtype; their products are added up in float32.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .dimensions import as_rows
from .product_route import is_worth_splitting
from .stand_in import is_traced

IEEE, FP32_SPLIT, BF16, FP16 = range(4)  # as in torch_split.h
_PRECISIONS = {"ieee": IEEE, "fp32_split": FP32_SPLIT, "bf16": BF16, "fp16": FP16}


def check_precision(name, precision):
    """The precision, if there is one of that name. name: of the package, for the error."""
    if not isinstance(precision, str) or precision not in _PRECISIONS:
        expected = ", ".join(_PRECISIONS)
        raise ValueError(f"{name}: precision must be one of {expected}, got {precision!r}")
    return precision


_EXPORTED_ROWS = 1024  # what torch.export decides for, whatever calls come with later


def precision_name(number):
    """The name of a precision."""
    return next(name for name, each in _PRECISIONS.items() if each == number)


def choose_precision(module, x, weight, activation):
    """The number of the precision in which the product of a call is made.

    x, weight: its operands. activation: the dtype in which it is made. In other dtypes than
    float32 there is one way alone. fp32_split is ieee where splitting is not worth it:
    product_route.py.
    """
    precision = module.fusegen_precision
    if precision == "ieee":
        return IEEE
    check_precision(module._fusegen_package.name, precision)
    if activation != torch.float32 or not weight.shape[1]:
        return IEEE  # without terms there is nothing to round
    if precision == "fp32_split" and not _is_worth_splitting(module, x, weight):
        return IEEE
    return _PRECISIONS[precision]


def _is_worth_splitting(module, x, weight):
    if x.device.type != "cuda" or module._fusegen_split_always:
        return True
    device = torch.cuda.get_device_properties(x.device)
    rows = x.numel() // x.shape[-1]
    # The flag, since Dynamo takes is_exporting() for true in any trace before torch 2.12.
    if torch.compiler._is_exporting_flag:
        rows = _EXPORTED_ROWS  # a number of rows that stays free must not be compared with anything
    # In training without gradients, too: a checkpoint runs so first, and then again with them.
    with_gradients = torch.is_grad_enabled() or module.training
    return is_worth_splitting(
        (device.major, device.minor),
        device.multi_processor_count,
        rows,
        *weight.shape,
        weight_kept=_may_keep(module, weight),
        gradients=with_gradients and (x.requires_grad or weight.requires_grad),
    )


def call_operator(module, operator, arguments):
    """The operator's result; in the precision fp32_split, with the pieces of both operands."""
    if operator.split is not None and arguments[-3] == FP32_SPLIT:
        arguments = _with_pieces(module, operator.split, arguments)
    return operator(*arguments)


def _with_pieces(module, split, arguments):
    weight = arguments[1]
    operand_pieces = split(as_rows(arguments[0]).detach())
    if _may_keep(module, weight):
        return (*arguments[:-2], operand_pieces, _kept_pieces(module, split, weight))
    return (*arguments[:-2], operand_pieces, split(weight.detach()))


# In inference the weight may be the same in one call after another, and splitting it takes a fifth
# of the time of a call. That it is, only its user knows: some writes count no version. So pieces
# are kept where `fusegen_keep_pieces` asks for it.


class _Kept(NamedTuple):
    """The pieces of a module's weight, and what tells whether they are still its own."""

    parameter: Tensor  # no weak reference, which torch.utils.swap_tensors refuses
    version: int
    data: Tensor  # an alias: while it lives, no other data can come to have its address
    stream: object  # of the split: on another one, nothing says that it is done
    pieces: Tensor

    def __deepcopy__(self, _):
        """A copy of a module has another weight. A parametrised one copies all that it has."""
        return None


def _kept_pieces(module, split, weight):
    """split(weight), or what it gave in an earlier call for the same weight.

    A write through `weight.data` counts no version, so it goes unnoticed until the next
    module.eval(), as `fusegen_keep_pieces` says.
    """
    # By package: a module of several regions has a weight in each.
    every, version = module.__dict__.setdefault("_fusegen_kept", {}), weight._version
    kept, parameter = every.get(split), _parameter(weight)
    stream = torch.cuda.current_stream(weight.device) if weight.is_cuda else None
    if (
        kept is None
        or kept.parameter is not parameter
        or kept.version != version
        or kept.data.data_ptr() != weight.data_ptr()
        or kept.data.stride() != weight.stride()
        or kept.data.device != weight.device
        or kept.stream != stream
    ):
        every.pop(split, None)  # before there are others: both would take memory
        with torch.inference_mode(False):  # a later call may save them for its backward pass
            data = weight.detach()
            pieces = split(data)
        kept = _Kept(parameter, version, data, stream, pieces)
        every[split] = kept
    return kept.pieces


def _parameter(weight):
    """What the module holds: the weight, or that with its dimensions exchanged."""
    return weight if weight._base is None else weight._base


def forget_pieces(module):
    """Has the next call split the weight anew."""
    module.__dict__.pop("_fusegen_kept", None)


def without_pieces(state):
    """A module's state for a copy or a file."""
    return {name: value for name, value in state.items() if name != "_fusegen_kept"}


def _may_keep(module, weight):
    """Whether the pieces of a weight may outlive the call.

    Not where nobody has asked for it, nor where the weight is to be trained.
    Not in a trace, which would take them for a constant. Not in a CUDA graph: its replays have to
    see the weight as it is then, and would read memory that has been freed. An inference tensor
    counts no versions, so nothing would tell that it was changed. What a parametrization computes
    is another tensor in the next call.
    """
    if module.training or not module.fusegen_keep_pieces:
        return False
    if not isinstance(_parameter(weight), torch.nn.Parameter):
        return False
    if torch.is_grad_enabled() and weight.requires_grad:
        return False
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return False
    if torch.jit.is_tracing():
        return False
    if is_traced(weight) or weight.is_inference():
        return False
    return not (weight.is_cuda and torch.cuda.is_current_stream_capturing())
