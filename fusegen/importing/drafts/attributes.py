"""What a spec calls the layers and parameters of a module: as the module does, or by a name of its own.

The state_dict of the spec's module has the module's names, which `state_dict` of the spec says.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from torch import nn

from fusegen.importing.steps.affine import ARITHMETIC
from fusegen.importing.steps.chain import StepDraft
from fusegen.importing.steps.new_names import NewNames
from fusegen.spec.names import MAX_NAME_LENGTH, check_attribute, passes

_KEYS = ("name", "parameter", "bias", "buffer")


def name_attributes(
    drafts: Sequence[StepDraft], module: nn.Module, arguments: Collection[str], taken: set[str]
) -> dict[str, str]:
    """Gives steps names that a spec can have, and returns the module's for those that are others. arguments: numbers of
    the spec, which no layer can be called like. taken: names of inputs, sizes and values."""
    own = {path for path, _ in [*module.named_modules(), *module.named_parameters(), *module.named_buffers()]}
    names = NewNames(taken | {path for path in own if "." not in path})
    known: dict[str, str] = {}
    for draft in drafts:
        for key in _KEYS:
            path = draft.data.get(key)
            if not isinstance(path, str) or (key == "name" and draft.data["op"] in ARITHMETIC):
                continue
            is_taken = key == "name" and path in arguments
            if path not in own or (_is_attribute(path) and not is_taken):
                continue
            if path not in known:
                known[path] = _name(path, draft.data["op"], names)
            draft.data[key] = known[path]
    return {name: path for path, name in known.items() if _has_state(module, path)}


def _is_attribute(path: str) -> bool:
    return passes(check_attribute, path)


def _name(path: str, op: str, names: NewNames) -> str:
    """`mlp_up` for mlp.up; of `0` the op's with the number."""
    joined = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9]", "_", path)).strip("_")
    joined = joined[-MAX_NAME_LENGTH + 8 :].strip("_")
    wanted = joined if joined[:1].isalpha() else f"{op}_{joined}".strip("_")
    return names.new(wanted if _is_attribute(wanted) else f"{op}_{wanted}")


def _has_state(module: nn.Module, path: str) -> bool:
    """Whether the state_dict has something of that name."""
    return any(key == path or key.startswith(f"{path}.") for key in module.state_dict())
