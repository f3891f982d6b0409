"""The text of an imported spec, with the line of the user's source behind each step."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from fusegen.importing.drafts.spec_draft import SpecDraft
from fusegen.importing.steps.chain import MODELS
from fusegen.importing.traces.source_locations import SourceLine
from fusegen.spec.model import DTYPES, FORMAT_VERSION
from fusegen.spec.text import spec_text


def spec_draft_text(spec_draft: SpecDraft, name: str, origin: str, remarks: Sequence[str]) -> str:
    """origin: where the module comes from. remarks: lines to be comments."""
    head = [f"Imported from {origin}.", *remarks]
    if spec_draft.notes:
        head.append(f"Its constructor takes more, which is fixed here: {', '.join(spec_draft.notes)}.")
    data: dict[str, Any] = {"fusegen": FORMAT_VERSION, "name": name}
    for key, entries in (("dims", spec_draft.dims), ("arguments", spec_draft.arguments), ("inputs", spec_draft.inputs)):
        if entries:
            data[key] = entries
    data |= {"dtypes": DTYPES, "targets": ["sm_90"], "chain": [written(draft.data) for draft in spec_draft.chain]}
    if spec_draft.outputs is not None:
        data["outputs"] = spec_draft.outputs
    if spec_draft.state_dict:
        data["state_dict"] = spec_draft.state_dict
    places = [None, *(draft.place for draft in spec_draft.chain)]
    return spec_text(data, head, [_line(*each) for each in itertools.pairwise(places)])


def _line(before: SourceLine | None, place: SourceLine | None) -> str:
    """The line of the source of a step, unless that stands behind the step before it."""
    if place is None or not place.source or place == before:
        return ""
    return f"{place.line}: {place.source.strip()}"


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
