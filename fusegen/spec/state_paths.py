"""The names that the original's state_dict has for what a spec's steps own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator

from fusegen.errors import Diagnostic, quote
from fusegen.spec.base import Plain, problem
from fusegen.spec.document import Document

_PATH = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
_MAX_LENGTH = 256
# What of a step is an attribute of the module with a state.
_KEYS = ("name", "parameter", "bias", "buffer")


def _path(value: str) -> str:
    if not _PATH.fullmatch(value) or len(value) > _MAX_LENGTH:
        raise problem("FG206", f"{quote(value)} is no path", "a path is such as blocks.0.up")
    return value


StatePath = Annotated[str, AfterValidator(_path), Plain("a path, such as mlp.up")]


def check_state_paths(document: Document) -> Iterator[Diagnostic]:
    """What `state_dict` says of something else than a step's, or twice."""
    written, chain = document.data.get("state_dict"), document.data.get("chain")
    if not isinstance(written, dict) or not isinstance(chain, list):
        return
    owned = {step.get(key) for step in chain if isinstance(step, dict) for key in _KEYS}
    seen = {name for name in owned if isinstance(name, str) and name not in written}
    for name, path in written.items():
        where = ("state_dict", name)
        if name not in owned:
            yield document.diagnostic("FG301", f"no step has the name {quote(name)}", where, key=True)
        if isinstance(path, str) and path in seen:
            yield document.diagnostic("FG208", f"{quote(path)} is the name of two tensors, or layers", where)
        seen.add(path) if isinstance(path, str) else None
