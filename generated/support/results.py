"""What a call of a module returns, of an operator and its arguments."""

from torch import Tensor

from .precisions import call_operator
from .trailing import transposed


def result_of(module, part, operator, arguments, inputs, last):
    """The result of the module, or of a region of it.

    part: what has the region's attributes. inputs: of the call. last: of images, whether the result
    is to be in channels_last; None: as PyTorch has it.
    """
    loss = part._fusegen_loss
    if loss is not None and loss.is_divided(module, arguments):
        return loss.in_chunks(module, operator, arguments, inputs)
    if isinstance(arguments[0], Tensor):
        result = call_operator(module, operator, arguments)
    else:  # something that stands for a tensor, which says how it becomes one
        result = arguments[0].call(module, operator, arguments, last)
    if module._fusegen_transposed:
        result = transposed(result, module._fusegen_transposed)
    if loss is None or loss.reduction == "none":
        return result
    return loss.of_results(module, part._fusegen_package, result, operator.dropped, inputs)
