"""Imports that have passed, kept: comparing a module with its spec takes seconds, tracing it does not.

The key is all that an import comes from: what torch.export sees of the module now, in both modes; its attributes; the
files of all functions that a call runs; fusegen and torch.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from fusegen.aten.nodes import shape
from fusegen.errors import SpecError
from fusegen.files import write
from fusegen.fusing.snapshot import attributes, plain
from fusegen.importing.module import from_module
from fusegen.importing.places import is_theirs
from fusegen.importing.trace import Trace, trace
from fusegen.paths import templates_directory

NAME = "chain"


def imported(module: nn.Module, inputs: Sequence[Tensor], store: Path, *, keep: bool) -> str:
    """As from_module: the text of the module's spec. store: a directory of imports that have passed. keep: whether to
    add this one. Raises SpecError."""
    key = _key(module, inputs)
    file = store / f"{key}.yaml"
    if key is not None and file.is_file():
        return file.read_text(encoding="utf-8")
    text = from_module(module, inputs, name=NAME)
    if keep and key is not None:
        store.mkdir(parents=True, exist_ok=True)
        write(file, text)
    return text


def _key(module: nn.Module, inputs: Sequence[Tensor]) -> str | None:
    """None for a module that is not traced, or holds tensors in its graph."""
    try:
        with torch.random.fork_rng(devices=[]):
            traces = [trace(module, inputs, training) for training in (True, False)]
    except SpecError:
        return None
    parts = [_program(), torch.__version__, *_attributes(module)]
    for each in traces:
        lines = list(_lines(each))
        if None in lines:
            return None
        parts += map(str, lines)
    parts += map(_digest, sorted(_files(module, inputs)))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _lines(found: Trace) -> Iterator[str | None]:
    """The graph as text; None for what text does not tell."""
    for node, leaf in found.leaves.items():
        yield f"{node.name} {leaf} {shape(node)} {getattr(node.meta.get('val'), 'dtype', None)}"
    for node in found.nodes:
        if node.op == "get_attr":
            root: Any = node.graph.owning_module
            part = getattr(root, str(node.target), None)
            yield part.code if isinstance(part, fx.GraphModule) else None
        yield f"{node.format_node()} {shape(node)}"
    yield " ".join([*(node.name for node in found.results), str(found.several)])


def _attributes(module: nn.Module) -> Iterator[str]:
    for path, part in module.named_modules():
        yield f"{path} {type(part).__module__} {type(part).__qualname__}"
        for name, value in attributes(part).items():
            if plain(value) and not callable(value):
                yield f"{name}={value!r}"


def _files(module: nn.Module, inputs: Sequence[Tensor]) -> set[str]:
    """The user's files of which functions run in a call."""
    found: set[str] = set()
    before, copied = sys.getprofile(), copy.deepcopy(module)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for training in (True, False):
            copied.train(training)
            sys.setprofile(lambda frame, event, _: found.add(frame.f_code.co_filename))
            try:
                copied(*inputs)
            finally:
                sys.setprofile(before)
    return {file for file in found if is_theirs(file)}


def _digest(file: str) -> str:
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return file


@functools.cache
def _program() -> str:
    """All of fusegen that a comparison runs."""
    roots = Path(__file__).resolve().parents[1], templates_directory()
    files = sorted(path for root in roots for pattern in ("*.py", "*.j2") for path in root.rglob(pattern))
    return hashlib.sha256("".join(_digest(str(path)) for path in files).encode()).hexdigest()
