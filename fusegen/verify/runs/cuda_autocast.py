"""Autocast as CUDA has it, for eager PyTorch on the CPU: the two keep different operators in 16 bits.

CPU autocast runs group, layer and RMS norm in 16 bits, and CUDA autocast in float32. What an operator gives on CUDA is
asked of fake CUDA tensors, which need no GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

_CASTABLE = (torch.float32, torch.bfloat16, torch.float16)
_AS_THEY_ARE = frozenset({"to", "double", "float", "detach", "backward", "__get__"})
_known: dict[Any, torch.dtype | None] = {}


class CudaAutocast(TorchFunctionMode):
    """While active, the functions of torch on CPU tensors cast their arguments as CUDA autocast to `dtype` would.

    Those of other libraries of operators run as they are.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        if not tensors or not _casts(func) or not any(t.dtype in _CASTABLE for t in tensors):
            return func(*args, **kwargs)
        cast_to = self._cast_to(func, args, kwargs, tensors)
        if cast_to is not None:
            args, kwargs = tree_map_only(Tensor, lambda t: t.to(cast_to) if t.dtype in _CASTABLE else t, (args, kwargs))
        with torch.autocast("cpu", enabled=False):
            return func(*args, **kwargs)

    def _cast_to(self, func: Any, args: tuple, kwargs: dict, tensors: Sequence[Tensor]) -> torch.dtype | None:
        """What the arguments have to be cast to; None where the function gives CUDA autocast's dtype by itself."""
        key = (self.dtype, func, tuple((t.dtype, t.dim()) for t in tensors))
        if key not in _known:
            wanted = _result_dtype(lambda: _on_fakes(func, args, kwargs), self.dtype)
            plain = _result_dtype(lambda: _on_fakes(func, args, kwargs), None)
            # Fakes take operands of a product in two dtypes, such as a value in 16 bits and a weight in float32.
            mixed = any(t.dtype in _CASTABLE and t.dim() and t.dtype != wanted for t in tensors)
            narrow = wanted is not None and wanted.itemsize == 2
            _known[key] = None if wanted == plain and not (mixed and narrow) else wanted
        return _known[key]


def _casts(func: Any) -> bool:
    """Whether autocast may have a rule for a function: not for those that only look, write in place or convert."""
    name = getattr(func, "__name__", "")
    module = getattr(func, "__module__", None) or ""
    other = getattr(func, "namespace", "aten") != "aten" or module.startswith("torch._ops")
    special = name.startswith("__")  # such as __rtruediv__
    in_place = name.startswith(("__i", "__set")) if special else name.endswith("_")
    return not other and not in_place and name not in _AS_THEY_ARE


def _on_fakes(func: Any, args: tuple, kwargs: dict) -> Any:
    with FakeTensorMode(), torch.no_grad():
        fakes = tree_map_only(Tensor, lambda t: torch.empty(t.shape, dtype=t.dtype, device="cuda"), (args, kwargs))
        return func(*fakes[0], **fakes[1])


def _result_dtype(call: Callable[[], Any], dtype: torch.dtype | None) -> torch.dtype | None:
    """The dtype of what a function gives under autocast to `dtype`; None where that is no tensor, or it refuses."""
    with autocast_on_cuda(dtype):
        try:
            result = call()
        except RuntimeError:
            return None
    return result.dtype if isinstance(result, Tensor) else None


@contextlib.contextmanager
def autocast_on_cuda(dtype: torch.dtype | None) -> Iterator[None]:
    """As torch.autocast("cuda", dtype), which would ask for a GPU first."""
    enabled, before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", dtype is not None)
    if dtype is not None:
        torch.set_autocast_dtype("cuda", dtype)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", enabled)
        torch.set_autocast_dtype("cuda", before)
        torch.clear_autocast_cache()
