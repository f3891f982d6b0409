"""An imported spec beside its original in double precision: output, gradients and running statistics, in both modes."""

from __future__ import annotations

import copy
import itertools
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
from fusegen.plan.plan import Plan
from fusegen.render.module import render_module
from fusegen.render.package import support_files
from fusegen.runtime.importing import import_package
from fusegen.verify.policy import error
from fusegen.verify.subject import spread_out

# Rows of a comparison: the chain is the same for all.
_ROWS = 16
# What rounding may leave: PyTorch's hardswish has a sixth as a float, in double precision too. Another eps, factor or
# formula leaves far more.
_LIMIT = 1e-7
# A gradient that cancels to nothing is as accurate as the others are large.
_CANCELLED = 1e-3
# Of sizes that are arguments, in turn, for a comparison at other sizes; the first that the original takes.
_FACTORS = ((2, 0.5), (0.5,), (2,), (3,))
# Sizes are first made smaller than that.
_SMALL = 512
# Parameters of a module that is compared once in each mode.
_LARGE = 2**22
_WRONG = "the import is wrong, or the module does what its trace does not show; no spec was written"
_FOLLOWS = "a number of the module follows from a size: make it an argument of the constructor; no spec was written"
FIXED_ROWS = "It works for {} rows alone: a view or a parameter of the module has that number."
SAME_SIZES = "It was compared at the sizes of the example alone: the original cannot be made with others."
UNKNOWN_VALUES = "How its parameters begin is not known without the constructor's arguments: load a state_dict."
OTHER_VALUES = "Its parameters begin with other values than the original's: load that one's state_dict."


def compare(plan: Plan, sheet: Sheet, arguments: Arguments) -> list[str]:
    """Remarks for those who read the spec. Raises SpecError for a difference."""
    rows = next(iter(sheet.inputs.values()))[0]
    remarks = [FIXED_ROWS.format(rows)] if isinstance(rows, int) else []
    with reference_class(plan) as cls:
        values = constructed(sheet, arguments, sheet.dims)
        _compare_pair(arguments.module, cls(**values), _few(arguments.inputs, sheet), "")
        if arguments.constructor is None:
            drawn = any(draft.data.get("init") in ("rand", "randn") for draft in sheet.chain)
            return [*remarks, *([UNKNOWN_VALUES] if drawn else [])]
        return remarks + _other_sizes(cls, sheet, arguments)


@contextmanager
def reference_class(plan: Plan) -> Iterator[type[nn.Module]]:
    """The class that the spec is rendered as, with the chain in PyTorch's operators as its forward. Nothing is
    compiled."""
    with tempfile.TemporaryDirectory(prefix="fusegen_import_") as directory:
        folder = Path(directory).resolve()
        files = {path: text for path, text in support_files().items() if path.endswith(".py")}
        files[f"{plan.spec.name}/__init__.py"] = render_module(plan, "")
        for path, text in files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        try:
            package = import_package(folder, plan.spec.name)
            fused = getattr(package, plan.spec.class_name)
            yield type(fused.__name__, (fused,), {"forward": fused.fusegen_reference})
        finally:
            for name, module in list(sys.modules.items()):
                if folder.name in name or str(getattr(module, "__file__", None)).startswith(str(folder)):
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
    most = max([sheet.dims[name] for name in free], default=1)
    shrunk = 1 << max(0, (most // _SMALL).bit_length() - 1)
    for divisor, factors in itertools.product(dict.fromkeys((shrunk, 1)), _FACTORS if free else ()):
        changed = zip(free, itertools.cycle(factors), strict=False)
        dims = sheet.dims | {name: max(1, int(sheet.dims[name] * factor / divisor)) for name, factor in changed}
        values = constructed(sheet, arguments, dims)
        own = {name: value for name, value in values.items() if name in given.values}
        examples = zip(sheet.inputs.values(), _few(arguments.inputs, sheet), strict=True)
        inputs = [_resized(example, shape, dims, sheet) for shape, example in examples]
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


def _few(inputs: Sequence[Tensor], sheet: Sheet) -> list[Tensor]:
    """The inputs with few rows, where the number of rows is free."""
    rows = next(iter(sheet.inputs.values()))[0]
    if isinstance(rows, int) or rows in sheet.arguments:
        return list(inputs)
    return [x[:_ROWS] for x in inputs]


def _resized(example: Tensor, shape: Sequence[int | str], dims: dict[str, int], sheet: Sheet) -> Tensor:
    """An input of other sizes, of the values of the example."""
    sizes = [*example.shape[:-1], int(dims.get(str(shape[1]), shape[1]))]
    if shape[0] in sheet.arguments:
        sizes[0] = dims[str(shape[0])]
    for dim in range(example.dim()):
        index = torch.arange(sizes[dim], device=example.device) % example.shape[dim]
        example = example.index_select(dim, index)
    return example


def _compare_pair(original: nn.Module, fused: nn.Module, inputs: Sequence[Tensor], where: str) -> None:
    alone = fused.state_dict().keys() ^ original.state_dict().keys()
    if alone:
        message = f"the state_dict has {', '.join(sorted(alone))} on one side alone"
        raise refusal("FG708", message)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        original = copy.deepcopy(original).cpu().double()
        spread_out(original)
        given = [x.detach().cpu().double() for x in inputs]
        drawn = [torch.randn_like(x) * 2 for x in given]
    fused = fused.double()
    fused.load_state_dict(original.state_dict())
    runs = [(given, True), (drawn, False), (drawn, True), (given, False)]
    large = sum(parameter.numel() for parameter in original.parameters()) > _LARGE
    for data, training in runs[:2] if large else runs:
        theirs = _run(original, data, training)
        try:
            ours = _run(fused, data, training)
        except Exception as error:
            message = f"the spec's module raises {type(error).__name__}{where}: {error}"
            raise refusal("FG708", message[:300], None, _WRONG) from None
        _compare_runs(theirs, ours, training, where)


def _compare_runs(theirs: dict[str, Tensor], ours: dict[str, Tensor], training: bool, where: str) -> None:
    gradients = [x for name, x in theirs.items() if name.startswith("gradient") and x.numel()]
    largest = max((float(x.abs().nan_to_num().max()) for x in gradients), default=0.0)
    for name, exact in theirs.items():
        terms = torch.tensor(largest * _CANCELLED) if name.startswith("gradient") else None
        found = error(ours[name], exact, terms)
        if not max(found.largest, found.norm) <= _LIMIT:
            mode = "training" if training else "evaluation"
            message = f"the spec's {name} is another one in {mode}{where}: off by {found.largest:.1e}"
            raise refusal("FG708", message, None, _FOLLOWS if where else _WRONG)


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
