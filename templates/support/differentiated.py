"""How autograd differentiates the op of a forward pass by that of the backward pass."""

import ctypes
import functools
import hashlib
import warnings
from pathlib import Path

import torch

from .op_schemas import arguments_of

_HERE = Path(__file__).parent


def differentiate_in_cpp(operator):
    """Has C++ differentiate the op, which saves host time; whether it can in this torch."""
    library = _autograd_library()
    if library is None:
        return False
    call = library.fusegen_differentiate
    call.restype = ctypes.c_char_p
    names = [op._schema.name.encode() for op in (operator.forward, operator.backward)]
    in_place, package = f"{operator.variant}backward_in_place", operator.package
    has_it = package.has_op(in_place)
    names.append(package.find_op(in_place)._schema.name.encode() if has_it else None)
    refusal = operator.package.no_second_derivative().encode()
    counts = ctypes.c_size_t(len(operator.gradients)), ctypes.c_size_t(operator.given)
    # As C++ counts: the gradients of results come first.
    places = [-1 if each is None else each + operator.given for each in operator.gradient_aliases]
    alias = (ctypes.c_int64 * len(places))(*places)
    reason = call(*names, *counts, alias, refusal)
    if reason is not None:
        raise ImportError(f"{operator.package.name}: {reason.decode()}")
    return True


def differentiate_in_python(operator):
    """An autograd.Function that does the same."""
    count, given = len(operator.gradients), operator.given
    sources = _sources(operator.forward, operator.backward, given)
    refusal = operator.package.no_second_derivative()

    class Differentiated(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *arguments):
            results = operator.forward(*arguments)
            results = results if isinstance(results, tuple) else (results,)
            saved, scalars = [], []
            for is_result, index, is_tensor in sources:
                value = results[index] if is_result else arguments[index]
                served = None if is_result else operator.served.get(index)
                if served is not None and not ctx.needs_input_grad[served]:
                    value = None
                (saved if is_tensor else scalars).append(value)
            ctx.save_for_backward(*saved)
            ctx.scalars = tuple(scalars)
            ctx.dtypes = [getattr(each, "dtype", None) for each in arguments[:count]]
            return results[0] if given == 1 else results[:given]

        @staticmethod
        def backward(ctx, *grads):
            if torch.is_grad_enabled() and not torch.compiler.is_compiling():
                raise RuntimeError(refusal)
            needs = ctx.needs_input_grad
            tensors, scalars = iter(ctx.saved_tensors), iter(ctx.scalars)
            values = [
                next(tensors) if is_tensor else next(scalars) for _, _, is_tensor in sources
            ]
            owners = _owners(operator, grads, ctx.dtypes)
            asked = [False] * count
            for index, owner in enumerate(owners):
                if needs[index] and owner >= 0:
                    asked[owner] = True
            made = iter(operator.backward(*grads, *values, asked) if any(asked) else ())
            found = [next(made) if each else None for each in asked]
            found += grads  # which negative places are
            wanted = [found[owner] if needs[i] else None for i, owner in enumerate(owners)]
            return (*wanted, *(None for _ in needs[count:]))

    return Differentiated


def _owners(operator, grads, dtypes):
    """The place of what is each gradient: its own, or that of what it is the same as."""
    given = [grad.dtype for grad in grads]
    found = []
    for index, alias in enumerate(operator.gradient_aliases):
        equal = alias is not None and (dtypes if alias >= 0 else given)[alias] == dtypes[index]
        found.append(alias if equal else index)
    return found


@functools.cache
def _autograd_library():
    """autograd.cpp compiled for this torch; None where there is none that serves."""
    path = _HERE / f"_autograd.{torch.__version__}.so"
    try:
        library = ctypes.CDLL(str(path))
        name = library.fusegen_sources
    except (OSError, AttributeError):
        if path.exists():
            warnings.warn(
                f"{path} does not load: `fusegen build` makes it again, calls take longer now",
                stacklevel=2,
            )
        return None
    name.restype = ctypes.c_char_p
    if name().decode() != hashlib.sha256((_HERE / "autograd.cpp").read_bytes()).hexdigest()[:12]:
        warnings.warn(
            f"{path} is of another source: `fusegen build` makes it again, calls take longer now",
            stacklevel=2,
        )
        return None
    return library


def _sources(forward, backward, given):
    """Where the backward op's arguments between the gradients and the last come from, by their
    names. given: how many gradients come first.

    Each as (whether it is a result of the forward op, its index there, whether it is a tensor).
    """
    arguments = [each.name for each in arguments_of(forward)]
    results = [each.name for each in forward._schema.returns]
    found = []
    for each in arguments_of(backward)[given:-1]:
        is_result = each.name not in arguments
        index = (results if is_result else arguments).index(each.name)
        found.append((is_result, index, "Tensor" in str(each.type)))
    return found
