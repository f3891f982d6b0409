"""The text of an imported spec, with the line of the user's source behind each step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fusegen.importing.chain import MODELS, Draft
from fusegen.importing.draft import Sheet
from fusegen.importing.places import Place
from fusegen.reference.keys import flow
from fusegen.spec.model import DTYPES, FORMAT_VERSION

_WIDTH = 120
# Where the comments of short steps begin.
_COLUMN = 60


def spec_text(sheet: Sheet, name: str, origin: str, remarks: Sequence[str]) -> str:
    """origin: where the module comes from. remarks: lines to be comments."""
    lines = [_comment(f"Imported from {origin}."), *(_comment(remark) for remark in remarks)]
    if sheet.notes:
        lines.append(_comment(f"Its constructor takes more, which is fixed here: {', '.join(sheet.notes)}."))
    lines += [f"fusegen: {FORMAT_VERSION}", f"name: {name}"]
    for key, entries in (("dims", sheet.dims), ("arguments", sheet.arguments), ("inputs", sheet.inputs)):
        if entries:
            lines += [f"{key}:", *(f"  {each}: {flow(value)}" for each, value in entries.items())]
    lines += [f"dtypes: {flow(DTYPES)}", "targets: [sm_90]", "chain:"]
    places = [None, *(draft.place for draft in sheet.chain)]
    steps = [_step(draft, before) for draft, before in zip(sheet.chain, places, strict=False)]
    behind = [f"outputs: {flow(sheet.outputs)}"] if sheet.outputs is not None else []
    if sheet.state_dict:
        behind += ["state_dict:", *(f"  {own}: {_path(path)}" for own, path in sheet.state_dict.items())]
    return "\n".join([*lines, *steps, *behind, ""])


def _path(path: str) -> str:
    """In YAML, which reads some paths as numbers."""
    return path if "." in path and path[0].isalpha() else json.dumps(path)


def line_of_step(text: str, index: int) -> int:
    """The number of the line that a step is on."""
    return text.splitlines().index("chain:") + 2 + index


def _step(draft: Draft, before: Place | None) -> str:
    """The step, and its line of the source unless that stands behind the step before it."""
    text = f"  - {flow(written(draft.data))}"
    if draft.place is None or not draft.place.source or draft.place == before:
        return text
    number = f"{draft.place.line}: "
    line = f"{text.ljust(_COLUMN)}  {_comment(number + draft.place.source.strip())}"
    least = len(text) + len(_comment(number)) + 2  # of a step that is as wide itself
    return line if len(line) <= _WIDTH else f"{line[: max(least, _WIDTH - 3)]}..."


def written(data: dict[str, Any]) -> dict[str, Any]:
    """The keys of a step that are not what they are without being written."""
    fields = MODELS[data["op"]].model_fields
    first = ["op", "from", *(key for key in ("name", "parameter") if key in fields)]
    order = sorted(
        (key for key in fields if key not in (*first, "from_", "save")), key=lambda key: not fields[key].is_required()
    )
    order = [*first, *order, "save"]
    found = {}
    for key in order:
        if key not in data or (key in fields and not fields[key].is_required() and data[key] == fields[key].default):
            continue
        found[key] = data[key]
    return found


def _comment(text: str) -> str:
    return "# " + "".join(char if char.isprintable() else " " for char in text)
