"""The JSON Schema of specs, for editors. It is of their form: what names refer to, only fusegen checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fusegen.files import parse_json, write_output, writing
from fusegen.ops.catalogue import STEPS
from fusegen.plan.launches.devices import all_targets
from fusegen.reference.ops import remarks
from fusegen.spec.model import spec_model

# Beside the specs: an editor finds it there without a network.
SCHEMA_FILE = "fusegen.schema.json"
COMMENT = f"# yaml-language-server: $schema={SCHEMA_FILE}"
_TITLE = "fusegen spec"
_VERSION = "http://json-schema.org/draft-07/schema#"  # what editors know


def schema() -> dict[str, Any]:
    """The JSON schema, draft 7, of a spec with the steps of the catalogue."""
    found = spec_model(STEPS).model_json_schema(by_alias=True)
    found = _plain(found)
    for step in STEPS:
        own = found["$defs"][step.__name__]
        own["description"] = " ".join([*dict.fromkeys(map(step.formula_of, step.ops())), *remarks(step)])
    found["properties"]["targets"]["items"]["enum"] = all_targets()
    return {"$schema": _VERSION, "title": _TITLE} | found | {"title": _TITLE}


def text() -> str:
    return json.dumps(schema(), indent=1) + "\n"


def write_beside(directory: Path, *, overwrite: bool = False) -> Path | None:
    """Writes the schema into a directory of specs; None if it is there already. That of another version is replaced.
    Raises SpecError where another file has its name and is not to be overwritten."""
    path = directory / SCHEMA_FILE
    with writing(path):
        former = path.read_bytes() if path.exists() else None
    if former == text().encode():
        return None
    write_output(path, text(), overwrite=overwrite or _is_schema(former))
    return path


def _is_schema(data: bytes | None) -> bool:
    """Whether some version of fusegen has written it."""
    try:
        content = None if data is None else parse_json(data)
    except ValueError:
        return False
    return isinstance(content, dict) and content.get("title") == _TITLE


def _plain(part: Any) -> Any:
    """Without the titles that pydantic makes of names, and without a default of null where null may not stand."""
    if isinstance(part, list):
        return [_plain(each) for each in part]
    if not isinstance(part, dict):
        return part
    found = {key: _plain(each) for key, each in part.items()}
    if isinstance(found.get("title"), str):
        del found["title"]
    takes_null = {"type": "null"} in found.get("anyOf", [])
    if found.get("default", 0) is None and not takes_null:
        del found["default"]
    return found
