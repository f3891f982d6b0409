"""When the kernels may stand in for the submodules of a chain: where they do what those would do.

Everything that makes a call of a submodule do something else is a reason to call it: another type,
hooks, an overridden method, tensors that are no plain ones or have another shape or dtype than the
kernels were generated for.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.nn.modules import module as _module
from torch.overrides import _get_current_function_mode_stack
from torch.torch_version import TorchVersion
from torch.utils._device import DeviceContext
from torch.utils.module_tracker import ModuleTracker

from .dimensions import check_dimensions, check_own_dimensions
from .dropout import DropPath
from .parametrised import computed, is_parametrised, is_ready, renew_weight


class Eager(NamedTuple):
    """Why PyTorch's own operators run in a call.

    expected: nobody has to be told. first_order: the kernels would run on their device, so that
    second derivatives are refused as they are there.
    """

    reason: str
    expected: bool = False
    first_order: bool = False


_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_KINDS = (
    *(nn.Linear, *_BATCH_NORMS, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, nn.PReLU),
    *(*_INSTANCE_NORMS, nn.Dropout, DropPath, nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
)
_FORWARD = {kind: kind.forward for kind in _KINDS}
_CALL, _CALL_IMPL = nn.Module.__call__, nn.Module._call_impl
_WRAPPED = nn.Module._wrapped_call_impl
_CHECKS = {kind: kind._check_input_dim for kind in (*_BATCH_NORMS, *_INSTANCE_NORMS)}
# Before, its result under autocast had the dtype of its input.
_RMS_NORM_IN_FLOAT32 = TorchVersion(torch.__version__) >= (2, 12)


def _functions():
    """Those that the submodules call, as they are now."""
    norms = (F.batch_norm, F.group_norm, F.layer_norm, F.rms_norm, F.instance_norm)
    adaptive = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)
    pools = (F.max_pool1d, F.max_pool2d, F.max_pool3d, F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
    return (F.linear, *norms, *adaptive, *pools, F.prelu, F.dropout)


FUNCTIONS = _functions()
_PRE_HOOKS, _HOOKS = _module._global_forward_pre_hooks, _module._global_forward_hooks
_BACKWARD_PRE_HOOKS = _module._global_backward_pre_hooks
_BACKWARD_HOOKS = _module._global_backward_hooks
HOOKS_OF_ALL = (_PRE_HOOKS, _HOOKS, _BACKWARD_PRE_HOOKS, _BACKWARD_HOOKS)
PLAIN = frozenset({Tensor, nn.Parameter})
_STRIDED = torch.strided

TRANSFORM = Eager("the call is inside a torch.func transform")
FORWARD_MODE = Eager("forward-mode differentiation is active, and the kernels have no forward mode")
OTHER_SHAPE = Eager("a norm's normalized_shape is not that of the channels")
OTHER_OUTPUT = Eager("a pooling has another output_size than one position")
OTHER_GROUPS = Eager("the numbers of groups of several norms were changed to differ")
HALF_TRACKED = Eager("a batch norm has only one of its running statistics")
SOME_FROZEN = Eager("some batch norms are in training and some in evaluation")
DROPS_FROZEN = Eager("a dropout is in training, and the batch norms are in evaluation")
NEGATIVE_MOMENTUM = Eager("a batch norm has a negative momentum")
NO_ROWS = Eager("there are no rows", expected=True)
GLOBAL_HOOKS = Eager("hooks are registered for all modules")
FUNCTION = Eager("a function of torch.nn.functional was replaced")
FUNCTION_MODE = Eager("a TorchFunctionMode is active")
RMS_NORM_AS_IT_IS = Eager("autocast runs rms_norm in float32 from torch 2.12 on, as the kernels do")
REFUSED = Eager("PyTorch refuses the call", expected=True)
ONE_ROW = REFUSED  # which has no variance
UNEQUAL_PARTS = Eager("the channels have no equal parts")
WANTS_GRADIENT = Eager("a buffer of the module wants a gradient")
COMPUTED = Eager("a tensor is computed by a parametrization")  # FusedModule makes the call anew


def obstacle(owner, inputs, submodules, dimensions=None):
    """The first reason why the kernels may not run; None where modules and call give none.

    owner: the module. inputs: of the call. submodules: of each its attribute's name, the submodule
    and the class that the package was generated for. dimensions: of the inputs, where they are not
    the owner's own: those of a region. Raises ValueError for inputs with dimensions that the chain
    does not take.
    """
    name, allowed = owner._fusegen_package.name, dimensions or owner._fusegen_dimensions
    least, own = allowed.least, allowed.own
    for index, x in enumerate(inputs):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: expected tensors as inputs, got {type(x).__name__}")
        if own and index in own:
            check_own_dimensions(name, allowed, x, index, inputs[0])
        elif x.dim() != 2 or inputs[0].dim() != 2 or least > 2:
            check_dimensions(name, allowed, x, inputs[0])
        if type(x) not in PLAIN and not is_traced(x):
            return Eager(f"an input is of type {type(x).__name__}")
        if x.layout is not _STRIDED:
            return Eager(f"an input has the layout {x.layout}")
    if torch._C._are_functorch_transforms_active():
        return TRANSFORM
    if forward_ad._current_level >= 0:
        return FORWARD_MODE
    is_computed = "parametrizations" in owner._modules
    if not submodules:
        return COMPUTED if is_computed and not is_ready(owner) else None
    if _PRE_HOOKS or _HOOKS or _BACKWARD_PRE_HOOKS or _BACKWARD_HOOKS:
        for hooks in HOOKS_OF_ALL:
            if not all(map(_only_watches, hooks.values())):
                return GLOBAL_HOOKS
    if _has_function_mode():
        return FUNCTION_MODE
    if _functions() != FUNCTIONS:
        return FUNCTION
    attributes = owner.__dict__
    for attribute, module, kind in submodules:
        if type(module) is not kind or attribute in attributes:
            if attribute in attributes or module is None or not is_parametrised(module, kind):
                return Eager(f"{attribute} is of type {type(module).__name__}, not {kind.__name__}")
            is_computed = True
        own = module.__dict__
        if (
            (own["_forward_pre_hooks"] and not renew_weight(module))
            or own["_forward_hooks"]
            or own["_backward_pre_hooks"]
            or own["_backward_hooks"]
        ):
            return Eager(f"{attribute} has hooks")
        # What a call goes through. An attribute of the instance takes the place of each.
        if (
            "forward" in own
            or "_call_impl" in own
            or "_wrapped_call_impl" in own
            or "_slow_forward" in own
            or "_check_input_dim" in own
            or module._compiled_call_impl is not None
        ):
            return Eager(f"{attribute} has a call of its own")
        if (
            kind.forward is not _FORWARD[kind]
            or kind.__call__ is not _CALL
            or kind._call_impl is not _CALL_IMPL
            or kind._wrapped_call_impl is not _WRAPPED
            or (kind in _CHECKS and kind._check_input_dim is not _CHECKS[kind])
        ):
            return Eager(f"a method of {kind.__name__} was replaced")
        if kind is nn.RMSNorm and not _RMS_NORM_IN_FLOAT32 and is_autocast(inputs[0].device.type):
            return RMS_NORM_AS_IT_IS
    return COMPUTED if is_computed and not is_ready(owner) else None


def tensor(module, name):
    """module.<name>, a tensor or None. nn.Module's own search takes several times as long."""
    found = module.__dict__.get(name)
    if found is None:
        found = module._parameters.get(name)
        if found is None:
            found = module._buffers.get(name)
            if found is None and "parametrizations" in module._modules:
                return computed(module, name)
    return found


def device_type(x):
    """The type of a tensor's device. PyTorch makes a string for each `x.device.type`, in 0.5 us."""
    return "cuda" if x.is_cuda else x.device.type


def autocast_dtype(device):
    """The dtype that autocast casts to, on a type of device."""
    return torch.get_autocast_dtype(device)


def is_autocast(device):
    """Whether autocast is on for a type of device; PyTorch has none for some, such as meta."""
    return device in ("cuda", "cpu") and torch.is_autocast_enabled(device)


def is_fit(each, dtype, shape):
    """Whether it is a plain tensor of this dtype and shape."""
    return (
        (type(each) in PLAIN or is_traced(each))
        and each.dtype is dtype
        and each.shape == shape
        and each.layout is _STRIDED
    )


def misfit(names, tensors, dtype, shape):
    """The first of the module's tensors that is no plain tensor of this dtype and shape."""
    for index, each in enumerate(tensors):
        if type(each) not in PLAIN and not is_traced(each):
            return _no_tensor(names[index], each)
        if each.dtype is not dtype or each.shape != shape or each.layout is not _STRIDED:
            came = f"{each.dtype} {list(each.shape)} {each.layout}"
            return Eager(f"{names[index]} is {came}, where the kernels take {dtype} {list(shape)}")
    return None


def unexpected(names, tensors):
    """The first tensor that is there although the package was generated for a module without it."""
    for index, each in enumerate(tensors):
        if each is not None:
            return Eager(f"{names[index]} is not None")
    return None


def misfit_plain(name, weight, dimensions):
    """Why a layer's weight is no plain tensor of so many dimensions."""
    if type(weight) not in PLAIN and not is_traced(weight):
        return _no_tensor(name, weight)
    if weight.dim() == dimensions and weight.layout is _STRIDED:
        return None
    return Eager(f"{name} is no strided tensor of {dimensions} dimensions")


def misfit_weight(name, weight):
    """Why a linear layer's weight is no plain matrix."""
    return misfit_plain(name, weight, 2)


def misfit_operand(name, weight, dtype, autocast):
    """Why a layer's weight is not in the activations' dtype, to which autocast casts it."""
    if weight.dtype == dtype or (autocast and weight.dtype != torch.float64):
        return None
    return Eager(f"{name} is {weight.dtype}, where the kernels take {dtype}")


def misfit_statistics(name, mean, variance, batches, dtype, channels):
    """Why a batch norm's buffers are not as the kernels write them, in training."""
    if mean is not None:
        if not (is_fit(mean, dtype, (channels,)) and is_fit(variance, dtype, (channels,))):
            names = (f"{name}.running_mean", f"{name}.running_var")
            return misfit(names, (mean, variance), dtype, (channels,))
        if not (mean.is_contiguous() and variance.is_contiguous()):
            return Eager(f"running statistics of {name} are not contiguous")
    if batches is not None and not is_fit(batches, torch.int64, ()):
        return misfit((f"{name}.num_batches_tracked",), (batches,), torch.int64, ())
    return None


def other_shape(norm, shape):
    """Whether a norm over the channels was given another shape since."""
    return None if norm.normalized_shape == shape else OTHER_SHAPE


def other_output(pool):
    """Whether a pooling to one position was given another output_size since."""
    sizes = pool.output_size if isinstance(pool.output_size, tuple) else (pool.output_size,)
    return None if all(size == 1 for size in sizes) else OTHER_OUTPUT


def elsewhere(name, module, x):
    """Why a call with `x` on a device without kernels runs PyTorch's operators.

    Raises RuntimeError where the module's tensors are not all on that device: PyTorch would compute
    with what is not there.
    """
    if not torch.compiler.is_compiling():
        for tensors in (module.named_parameters(), module.named_buffers()):
            for attribute, each in tensors:
                if each.device != x.device:
                    raise RuntimeError(
                        f"{name}: {attribute} is on {each.device}, the input on {x.device}"
                    )
    return Eager(
        f"the input is on {x.device.type}, where there are no kernels",
        expected=True,
        first_order=True,
    )


def is_traced(x):
    """Whether it stands for a plain tensor, which has no behaviour of its own, in a trace."""
    return type(x).__module__.startswith("torch._subclasses.")


def _no_tensor(name, value):
    kind = "None" if value is None else f"of type {type(value).__name__}"
    return Eager(f"{name} is {kind}")


def _has_function_mode():
    """Whether a mode of the user's may change what functions do; a default device is none."""
    if torch.compiler.is_compiling() or not torch._C._len_torch_function_stack():
        return False
    stack = _get_current_function_mode_stack()
    return any(type(mode) is not DeviceContext for mode in stack)


def _only_watches(hook):
    """Whether a hook is torch's own that only records where a call is, as in FlopCounterMode."""
    return isinstance(getattr(hook, "__self__", None), ModuleTracker)
