"""The product of matrices that a chain begins with, for each element of a batch: PyTorch's own op.

Its result [..., rows, channels] is [rows, channels] to the kernels, by a view. It is made in front
of the kernels' op, so its gradients are those of PyTorch's node.
"""

from typing import NamedTuple

from torch import Tensor

from .precisions import call_operator
from .stand_in import Eager

EMPTY = Eager("the result has no elements", expected=True)
OTHER_BATCH = Eager("the operands of the product have other leading dimensions")


class Multiplied(NamedTuple):
    """Stands for the first argument of an operator: a product, yet to be made.

    transposed: whether the right operand has its last two dimensions exchanged.
    """

    left: Tensor
    right: Tensor
    transposed: bool

    def call(self, module, operator, arguments, last):
        """As FusedModule._fusegen_run_part() calls it."""
        product = self.left @ (self.right.mT if self.transposed else self.right)
        return call_operator(module, operator, (product, *arguments[1:]))
