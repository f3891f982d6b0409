"""An imported spec beside its original, in double precision: output, gradients and running statistics, in both modes."""

from __future__ import annotations

import copy
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.importing.arguments import Arguments
from fusegen.importing.draft import Sheet
from fusegen.importing.places import refusal
from fusegen.paths import SUPPORT
from fusegen.plan.plan import Plan
from fusegen.render.module import render_module
from fusegen.render.package import support_files
from fusegen.runtime.importing import import_package
from fusegen.verify.policy import error
from fusegen.verify.subject import spread_out

# Rows of a comparison: the chain is the same for all.
_ROWS = 16
# What rounding may leave in double precision; another eps, factor or formula leaves far more.
_LIMIT = 1e-9
# A gradient that cancels to nothing is as accurate as the others are large.
_CANCELLED = 1e-3
SAME_SIZES = "It was compared at the sizes of the example alone: the original cannot be made with others."
OTHER_VALUES = "Its parameters begin with other values than the original's: load that one's state_dict."


def compare(plan: Plan, sheet: Sheet, arguments: Arguments) -> list[str]:
    """Remarks for those who read the spec. Raises SpecError for a difference."""
    with reference_class(plan) as cls:
        values = constructed(sheet, arguments, sheet.dims)
        _compare_pair(arguments.module, cls(**values), arguments.inputs, "")
        if arguments.constructor is None:
            return []
        return _other_sizes(cls, sheet, arguments)


@contextmanager
def reference_class(plan: Plan) -> Iterator[type[nn.Module]]:
    """The class that the spec is rendered as, with the chain in PyTorch's operators as its forward. Nothing is
    compiled."""
    before = set(sys.modules)
    with tempfile.TemporaryDirectory(prefix="fusegen_import_") as directory:
        files = {path: text for path, text in support_files().items() if path.endswith(".py")}
        files[f"{plan.spec.name}/__init__.py"] = render_module(plan, "")
        for path, text in files.items():
            file = Path(directory) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        try:
            package = import_package(Path(directory).resolve(), plan.spec.name)
            fused = getattr(package, plan.spec.class_name)
            yield type(fused.__name__, (fused,), {"forward": fused.fusegen_reference})
        finally:
            for name in set(sys.modules) - before:
                if str(getattr(sys.modules[name], "__file__", "") or "").startswith(directory) or SUPPORT in name:
                    del sys.modules[name]


def constructed(sheet: Sheet, arguments: Arguments, dims: dict[str, int]) -> dict[str, Any]:
    """The values of the spec's arguments, with these sizes."""
    given = arguments.constructor.values if arguments.constructor else {}
    found: dict[str, Any] = {}
    for name, argument in sheet.arguments.items():
        if argument["type"] == "dim":
            found[name] = dims[name]
        elif argument["type"] == "shape":
            found[name] = tuple(dims.get(size, size) for size in argument["is"])
        else:
            found[name] = given[name] if name in given else argument["default"]
    return found


def _other_sizes(cls: type[nn.Module], sheet: Sheet, arguments: Arguments) -> list[str]:
    """A number that follows from a size shows where the size is another one."""
    given = arguments.constructor
    assert given is not None
    free = [name for name, each in sheet.arguments.items() if each["type"] == "dim"]
    for change in (lambda n: n // 2, lambda n: n * 2, lambda n: n * 3) if free else ():
        dims = {name: change(size) if name in free else size for name, size in sheet.dims.items()}
        values = constructed(sheet, arguments, dims)
        own = {name: value for name, value in values.items() if name in given.values}
        inputs = [_input(shape, dims, example) for shape, example in zip(sheet.inputs.values(), arguments.inputs, strict=True)]
        try:
            original = given.instance(own)
            copy.deepcopy(original).eval()(*inputs)
        except Exception:  # theirs to refuse: groups that do not divide, say
            continue
        _compare_pair(original, cls(**values), inputs, " at other sizes")
        return _beginnings(original, cls, values)
    original = given.instance()
    return [*([SAME_SIZES] if free else []), *_beginnings(original, cls, constructed(sheet, arguments, sheet.dims))]


def _beginnings(original: nn.Module, cls: type[nn.Module], values: dict[str, Any]) -> list[str]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ours = cls(**values).state_dict()
    theirs = original.state_dict()
    same = all(torch.equal(ours[name].to(value.dtype), value) for name, value in theirs.items())
    return [] if same else [OTHER_VALUES]


def _input(shape: Sequence[int | str], dims: dict[str, int], example: Tensor) -> Tensor:
    """An input of other sizes, with the values of the example as far as it goes."""
    channels = dims.get(str(shape[-1]), shape[-1])
    repeats = -(-int(channels) // example.shape[-1])
    return example[..., : int(channels)] if repeats == 1 else torch.cat([example] * repeats, -1)[..., : int(channels)]


def _compare_pair(original: nn.Module, fused: nn.Module, inputs: Sequence[Tensor], where: str) -> None:
    ours, theirs = list(fused.state_dict()), list(original.state_dict())
    if sorted(ours) != sorted(theirs):
        message = f"the state_dict has {', '.join(sorted(set(ours) ^ set(theirs)))} on one side alone"
        raise refusal("FG708", message)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        original = copy.deepcopy(original).cpu().double()
        spread_out(original)
        few = [_few(x.detach().cpu()) for x in inputs]
        drawn = [torch.randn_like(x, dtype=torch.float64) * 2 for x in few]
    fused = fused.double()
    fused.load_state_dict(original.state_dict())
    for data in (few, drawn):
        for training in (True, False):
            a, b = _run(original, data, training), _run(fused, data, training)
            largest = max((float(x.abs().nan_to_num().max()) for name, x in a.items() if name.startswith("gradient") and x.numel()), default=0.0)
            for name, exact in a.items():
                terms = torch.tensor(largest * _CANCELLED) if name.startswith("gradient") else None
                found = error(b[name], exact, terms)
                if not max(found.largest, found.norm) <= _LIMIT:
                    mode = "training" if training else "evaluation"
                    hint = "the import is wrong, or the module does what its trace does not show; no file was written"
                    message = f"the spec's {name} is another one in {mode}{where}: off by {found.largest:.1e}"
                    raise refusal("FG708", message, None, hint)


def _few(x: Tensor) -> Tensor:
    """The first rows, in double precision."""
    return (x[:_ROWS] if x.dim() > 1 else x).double()


def _run(module: nn.Module, inputs: Sequence[Tensor], training: bool) -> dict[str, Tensor]:
    """What a call and its backward pass give, by name."""
    module.train(training).zero_grad(set_to_none=True)
    given = [x.clone().requires_grad_() for x in inputs]
    output = module(*given)
    if not isinstance(output, Tensor):
        raise refusal("FG705", "forward returns something else than one tensor")
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output).sin() + 0.3
    if output.requires_grad:
        (output * weights).sum().backward()
    found = {"output": output.detach()}
    gradients = [*((f"input {index}", x) for index, x in enumerate(given)), *module.named_parameters()]
    for name, tensor in gradients:
        found[f"gradient of {name}"] = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
    return found | {name: buffer.clone() for name, buffer in module.named_buffers()}
