"""A class in a file of the user's, and the functions there that give its arguments and example inputs."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from fusegen.errors import Diagnostic, SpecError
from fusegen.files import refuse_output, write_output, writing
from fusegen.importing.module import from_module
from fusegen.importing.traces.source_locations import of_error, refusal
from fusegen.progress import tell
from fusegen.spec.wording import nearest, suggest

_MODEL = "write FILE.py:CLASS"
_INPUTS = "write `def get_inputs(): return [torch.randn(...)]`, or name a function with --inputs"


def import_spec(model: str, init: str, inputs: str, output: Path, *, overwrite: bool) -> None:
    """Writes the spec of a class in a file. model: FILE.py:CLASS. init, inputs: functions of that file. Raises
    SpecError, and then writes nothing."""
    if output.suffix not in (".yaml", ".yml"):
        raise SpecError([Diagnostic("FG504", f"{output} is no spec's file", hint="a spec is in NAME.yaml")])
    source = [Path(model.rpartition(":")[0])]
    refuse_output(output, inputs=source, overwrite=overwrite)
    loaded = load_model(model, init, inputs)
    text = from_module(loaded.module, loaded.examples, arguments=loaded.arguments, name=output.stem)
    with writing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
    write_output(output, text, inputs=source, overwrite=overwrite)


@dataclass(frozen=True)
class Loaded:
    """A module that its class has made with these arguments, and example inputs."""

    module: nn.Module
    examples: Sequence[Tensor]
    arguments: Any


def load_model(model: str, init: str, inputs: str) -> Loaded:
    """A module of a class in a file. model: FILE.py:CLASS. init, inputs: functions of that file. Raises SpecError."""
    file, _, name = model.rpartition(":")
    if not file and model.endswith(".py") and Path(model).is_file():
        raise refusal("FG701", f"{model} is a file without the name of a class", None, _MODEL)
    if not file.endswith(".py") or not Path(file).is_file():
        raise refusal("FG701", f"there is no file {file or model}", None, _MODEL)
    tell(f"running {file}")
    source = load_file(Path(file))
    cls = _found(source, name, [each for each, value in vars(source).items() if _is_model(value, source)])
    if not isinstance(cls, type) or not issubclass(cls, nn.Module):
        raise refusal("FG701", f"{name} in {file} is no class of nn.Module")
    functions = [each for each, value in vars(source).items() if callable(value) and not isinstance(value, type)]
    arguments: Any = []
    if hasattr(source, init) or init != DEFAULT_INIT:
        arguments = _called(_found(source, init, functions))
    near = functions if nearest(inputs, functions) else []
    examples = _called(_found(source, inputs, near, _INPUTS))
    if isinstance(examples, Tensor):
        examples = [examples]
    if not isinstance(examples, list | tuple) or not all(isinstance(each, Tensor) for each in examples) or not examples:
        raise refusal("FG701", f"{inputs}() does not return a list of tensors")
    if not isinstance(arguments, list | tuple | Mapping):
        raise refusal("FG701", f"{init}() does not return a list of arguments, or a mapping of them")
    make: Callable[[], nn.Module] = lambda: cls(**arguments) if isinstance(arguments, Mapping) else cls(*arguments)  # noqa: E731
    return Loaded(_called(make), examples, arguments)


DEFAULT_INIT, DEFAULT_INPUTS = "get_init_inputs", "get_inputs"


def load_file(path: Path) -> ModuleType:
    """A file of Python as a module, as `python FILE` would run it: it finds what lies beside it."""
    name = f"_fusegen_imported_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        _called(lambda: spec.loader.exec_module(module))  # type: ignore[union-attr]
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def _is_model(value: Any, module: ModuleType) -> bool:
    return isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == module.__name__


def _found(module: ModuleType, name: str, known: Sequence[str], otherwise: str = _MODEL) -> Any:
    """What the file has by this name. known: names that could be meant. otherwise: the hint where none is."""
    if not hasattr(module, name):
        hint = suggest(name, known) or otherwise
        raise refusal("FG701", f"there is no {name or 'class'} in {Path(str(module.__file__)).name}", None, hint)
    return getattr(module, name)


def _called(function: Callable[[], Any]) -> Any:
    """What the user's function returns; what it raises is theirs."""
    try:
        return function()
    except Exception as error:
        raise refusal("FG701", f"{type(error).__name__}: {error}"[:300], of_error(error)) from None
