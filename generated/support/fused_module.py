"""The base of the generated modules: what runs in a call, and what a user may ask about it."""

import warnings
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, fx, nn

from .dropout import DrawsFactors
from .parametrised import once
from .precisions import forget_pieces, precision_name, without_pieces
from .remembered import forget, recall, remember
from .results import result_of
from .stand_in import COMPUTED, NO_ROWS, device_type, elsewhere
from .state_names import OriginalNames


class KernelUse(NamedTuple):
    """Whether the fused kernels run in a call, and why not. It is true where they do.

    precision: in which they make a product; empty where there is one way alone.
    """

    used: bool
    reason: str
    precision: str = ""

    def __bool__(self) -> bool:
        return self.used


class FusedModule(DrawsFactors, OriginalNames, nn.Module):
    """A chain of operators as fused kernels.

    Where the kernels cannot do what PyTorch's operators would do, those run. The module warns of
    that once for each reason; `fusegen_strict = True` makes it an error.

    `fusegen_keep_pieces = True` says that in evaluation the weights of the products stay as they
    are: with the precision fp32_split the pieces of a weight that needs no gradient are made in one
    call, and kept for the next ones. Pieces are made again where the weight is another tensor, has
    other memory, or was written to in a way that counts a version (`weight._version`). A write that
    counts none is not seen: through `weight.data`, NumPy or DLPack, by a collective operation or
    the replay of a CUDA graph. `eval()`, `train()` and `to()` forget the pieces.

    `fusegen_chunk` is for a loss with `chunk` in its spec: so many rows at a time, in place of what
    the spec says.
    """

    __slots__ = ("_fusegen_memories",)  # no attribute of a copy or a file: see remembered.py

    fusegen_strict: bool = False
    fusegen_chunk: int | None = None
    fusegen_keep_pieces: bool = False
    _fusegen_loss = None
    _fusegen_transposed = ()  # the result's dimensions, where its rows come behind the channels
    _fusegen_split_always = False  # fp32_split even where it is slower

    def fusegen_kernels(self, *inputs: Tensor) -> KernelUse:
        """Whether a call with these inputs would run the kernels. Computes nothing.

        Raises what the call would raise for inputs that fit neither.
        """
        operator, found = self._fusegen_choose(inputs, count=False)
        if found is COMPUTED:
            with once(self, shapes_alone=True):
                operator, found = self._fusegen_choose(inputs, count=False)
        if operator is None:
            return KernelUse(False, found.reason)
        return KernelUse(True, "", "" if operator.split is None else precision_name(found[-3]))

    def fusegen_reference(self, *inputs: Tensor) -> Tensor:
        """The chain in PyTorch's own operators."""
        raise NotImplementedError

    def _fusegen_call(self, *inputs, _device, _count):
        """The operator and its arguments for a call; or None and an `Eager`.

        _device: the type of the inputs' device. _count: whether the call is made, so that batches
        are counted for a cumulative average.
        """
        raise NotImplementedError

    def _fusegen_choose(self, inputs, count, part=None):
        """As _fusegen_call, where the inputs are: on any device.

        part: the class of a region of this module's, whose call is asked for; it reads this one.
        """
        package, x = (part or self)._fusegen_package, inputs[0]
        device = device_type(x) if isinstance(x, Tensor) else None
        ready = device == package.device and package.built and x.numel() > 0
        call = self._fusegen_call if part is None else partial(part._fusegen_call, self)
        operator, found = call(*inputs, _device=device, _count=count and ready)
        if operator is None or ready:
            return operator, found
        if device != package.device:
            return None, elsewhere(package.name, self, x)
        if x.numel() == 0 and (x.shape[0] or not operator.sync_batch_norm):
            return None, NO_ROWS
        if package.built:
            return operator, found  # other ranks wait for this one, which has no rows
        raise RuntimeError(f"{package.name} is not built: {package.command()}")

    def _fusegen_run(self, *inputs):
        if isinstance(inputs[0], fx.Proxy):
            return self._fusegen_leaf(inputs)
        return self._fusegen_run_part(inputs)

    def _fusegen_run_part(self, inputs, part=None, deeper=0, last=None):
        """A call of the module, or of a region of it. deeper: how many calls of this are around.
        last: of images, whether the result is to be in channels_last; None: as PyTorch has it.
        """
        remembered = recall(self, part, inputs)
        if remembered is not None:
            operator, arguments = remembered
            try:
                return operator(*arguments)
            except RuntimeError:  # before anything is written, as of a tensor with other data
                forget(self)
        of_part = {} if part is None else {"part": part}
        operator, found = self._fusegen_choose(inputs, count=True, **of_part)
        if operator is not None:
            remember(self, part, inputs, operator, found)
            return result_of(self, part or self, operator, found, inputs, last)
        if found is COMPUTED:
            with once(self):
                return self._fusegen_run_part(inputs, part, deeper=deeper + 1, last=last)
        package = (part or self)._fusegen_package
        self._fusegen_tell(found, package, depth=(7 if part is None else 10) + deeper)
        result = part.fusegen_reference(self, *inputs) if part else self.fusegen_reference(*inputs)
        if found.first_order and not torch.compiler.is_compiling():
            for each in result if isinstance(result, tuple) else (result,):
                if each.grad_fn is not None:
                    each.grad_fn.register_prehook(_refuse_second_derivative(package))
        return result

    def _fusegen_tell(self, eager, package=None, depth=6):
        """Warns of a reason once, or raises it where the kernels were insisted on.

        package: of the region that it is about, if the module has several. depth: how many calls
        lie between the module's caller, past torch's two frames, and the warning.
        """
        name = (package or self._fusegen_package).name
        if self.fusegen_strict and (eager.first_order or not eager.expected):
            raise RuntimeError(
                f"{name}: fusegen_strict is set, and the kernels cannot run: {eager.reason}"
            )
        if torch.compiler.is_compiling():
            return  # a trace has no place for warnings
        told = self.__dict__.setdefault("_fusegen_told", set())
        if not eager.expected and (name, eager.reason) not in told:
            told.add((name, eager.reason))
            warnings.warn(
                f"{name}: PyTorch's own operators run, not the kernels: {eager.reason}",
                stacklevel=depth,
            )

    def _fusegen_leaf(self, inputs):
        """Under torch.fx.symbolic_trace: one call of this module, as of torch's own."""
        tracer = inputs[0].tracer
        path = tracer.path_of_module(self)
        if not path:
            raise RuntimeError(
                f"{type(self).__name__} cannot be traced into: its kernels are no operators of "
                "torch.fx. Trace a module that holds it, in which it becomes one call"
            )
        return tracer.create_proxy("call_module", path, inputs, {})

    # What a module in evaluation keeps is its own alone, and of its weight where that is now.

    def train(self, mode=True):
        forget_pieces(self)
        return super().train(mode)

    def _apply(self, *arguments, **named):
        forget_pieces(self)
        forget(self)
        return super()._apply(*arguments, **named)

    def __getstate__(self):
        return without_pieces(self.__dict__)

    def __prepare_scriptable__(self):
        raise NotImplementedError(
            f"{type(self).__name__} cannot be compiled by torch.jit.script, which is deprecated: "
            "use torch.compile or torch.export"
        )


def _refuse_second_derivative(package):
    """A hook of the node that made the result, which refuses what the kernels' node refuses."""

    def hook(grads):
        if torch.is_grad_enabled():
            raise RuntimeError(package.no_second_derivative())

    return hook


def check_shape(name, came, expected):
    """A shape argument is the original module's; the package was generated for this shape."""
    if tuple(came) != expected:
        raise ValueError(f"{name} must be {expected}, got {tuple(came)}")
