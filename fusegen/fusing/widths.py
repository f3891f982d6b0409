"""The text of an imported spec with its widths as sizes that modules of one form may differ in."""

from __future__ import annotations

from typing import Any

from fusegen.fusing.image_widths import name_channels
from fusegen.importing.places import refusal
from fusegen.ir.multiples import times
from fusegen.plan.composition import Planned
from fusegen.plan.load import planned_document
from fusegen.spec.text import flow, spec_text
from fusegen.spec.yaml import parse_yaml

_UNITS = ("glu", "swiglu", "geglu", "reglu")
_LAYERS = ("linear", "matmul", "bmm")
_REMARK = "Written by fusegen.fuse. Parameters are those of the model: how they begin (init) is of no use there."


def with_widths(
    text: str, count: int | None, targets: list[str] | None, origin: str | None = None
) -> tuple[str, Planned]:
    """The spec, and its plan.

    count: of the rows, for planning; None of images. targets: in place of the text's. origin: what it was imported
    from, in place of the text's remarks. Raises SpecError where the chain works for one number of rows alone, or the
    planner refuses it.
    """
    data = parse_yaml(text, "the imported spec").data
    first_line = text.splitlines()[0].removeprefix("# ") if origin is None else f"Imported from {origin}."
    remarks = _remarks(text, data["chain"]) if origin is None else []
    first = next(iter(data["inputs"]))
    _check_form(data, count is None)
    if count is None:
        return _finished(data, name_channels(data, _names(data)), targets, remarks, first_line)
    rows, width = data["inputs"][first]
    if isinstance(rows, int):
        message = f"it works for {rows} rows alone"
        raise refusal("FG705", message, None, "a view or a parameter has the number of rows of the example")
    if _has_fixed_widths(data["chain"]):
        data["dims"] = {**data.get("dims", {}), rows: count}
        return _finished(data, {}, targets, remarks, first_line)
    step = data["chain"][0]
    multiplies = step["op"] in ("linear", "matmul")
    if step["op"] == "matmul":
        channels = step["shape"][0 if step.get("transposed") else 1]
    else:
        channels = step["out_features"] if multiplies else width
    parts = _number_of_parts(data["chain"])
    channels = channels // parts if isinstance(channels, int) else channels
    sizes: dict[str, int] = {}

    def size(name: str, value: Any) -> Any:
        if not isinstance(value, int) or value == 1 or name in _names(data):
            return value
        sizes[name] = value
        return name

    again = any(each.get("input") == first for each in data["chain"])
    if multiplies:
        channels = size("features" if again or parts > 1 else "out_features", channels)
        width = channels if again else size("in_features", width)
    else:
        width = channels = size("features", channels)
    data["inputs"] = {name: [rows, width if name == first else channels] for name, (rows, _) in data["inputs"].items()}
    for each in data["chain"]:
        for key in ("out_features", "num_parameters"):
            if isinstance(each.get(key), int) and each[key] != 1:
                each[key] = times(parts, channels) if key == "out_features" else channels
        if each["op"] == "matmul":
            whole = times(parts, channels)
            each["shape"] = [whole, width] if each.get("transposed") else [width, whole]
            each |= {"init": "zeros"} | ({"bias_init": "zeros"} if "bias" in each else {})
        elif "shape" in each:
            each["shape"] = [value if value == 1 else channels for value in each["shape"]]
            each["init"] = "zeros"
    data["dims"] = {**data.get("dims", {}), rows: count, **sizes}
    dims: dict[str, Any] = {
        name: {"type": "dim"} for name in ("in_features", "out_features", "features") if name in sizes
    }
    return _finished(data, dims, targets, remarks, first_line)


def _finished(
    data: dict[str, Any], dims: dict[str, Any], targets: list[str] | None, remarks: list[str], origin: str
) -> tuple[str, Planned]:
    """The text and the plan. dims: arguments that are sizes."""
    data["arguments"] = {**dims, **data.get("arguments", {})}
    data["targets"] = targets or data["targets"]
    order = ("fusegen", "name", "dims", "arguments")
    data = {key: data.pop(key) for key in order} | data
    made = spec_text({key: value for key, value in data.items() if value != {}}, [origin, _REMARK], remarks)
    return made, planned_document(parse_yaml(made, "the imported spec"))


def _has_fixed_widths(chain: list[dict[str, Any]]) -> bool:
    """Whether widths stay numbers, so that modules of other widths have specs of their own: where there are more than
    two, with several regions, or parts of another value than the first layer's result."""
    divided = any("parts" in step or step["op"] in _UNITS for step in (*chain[:1], *chain[2:]))
    return divided or any("from" in step for step in chain) or any(step["op"] in _LAYERS for step in chain[1:])


def _check_form(data: dict[str, Any], of_images: bool) -> None:
    """Raises SpecError for what is imported, but not replaced in a model."""
    if not of_images and any(len(shape) != 2 for shape in data["inputs"].values()):
        raise refusal("FG707", "an input has not the form [rows, channels]", None, "import the module")
    if "state_dict" in data:
        path = next(iter(data["state_dict"].values()))
        raise refusal("FG706", f"a spec has another name for '{path}'", None, "rename it, or import the module")


def _number_of_parts(chain: list[dict[str, Any]]) -> int:
    """Into how many the result of the first layer is divided."""
    second = chain[1] if len(chain) > 1 else {}
    return len(second["parts"]) if "parts" in second else 2 if second.get("op") in _UNITS else 1


def _names(data: dict[str, Any]) -> set[str]:
    """What a size cannot be called."""
    steps = [each.get(key) for each in data["chain"] for key in ("name", "save", "parameter")]
    steps += [part for each in data["chain"] for part in each.get("parts", ())]
    return {*data["inputs"], *data.get("arguments", {}), *data.get("dims", {}), *map(str, steps)}


def _remarks(text: str, chain: list[dict[str, Any]]) -> list[str]:
    """The remark behind each step."""
    lines = text.splitlines()
    found = lines[lines.index("chain:") + 1 :]
    behind = (line.removeprefix(f"  - {flow(step)}") for line, step in zip(found, chain, strict=False))
    return [each.strip().removeprefix("# ") for each in behind]
