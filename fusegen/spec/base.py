"""What every model of a part of the spec is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError, PydanticKnownError

Item = TypeVar("Item")


class SpecPart(BaseModel):
    """Base of spec models: no conversions (but a whole number is a number), no unknown keys, immutable."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


@dataclass(frozen=True)
class Plain:
    """Annotates a type with what messages call a value of it, such as "a name"."""

    text: str


def meaning(text: str, *examples: Any) -> Any:
    """What the reference, the schema and `fusegen ops` say of a key, and values that it may have."""
    return Field(description=text, examples=list(examples))


def problem(code: str, message: str, hint: str | None = None) -> PydanticCustomError:
    """The error a validator raises to choose the diagnostic's code and hint itself."""
    return PydanticCustomError(code, "{message}", {"message": message, "hint": hint})


def _given(value: Any) -> Any:
    if value is None:
        raise problem("FG205", "null is not a value here", "leave the key out instead")
    return value


def _no_truth(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticKnownError("int_type")
    return value


# Beside a choice of numbers: `true` equals 1, and would be taken for it.
NO_TRUTH = BeforeValidator(_no_truth)

# A YAML list as a tuple. Strict validation would insist on a Python tuple; the elements stay strict.
Listing = Annotated[tuple[Item, ...], Field(strict=False)]


class _NotNull:
    """Marks a type whose None only stands for a missing key: neither messages nor the JSON Schema offer null."""

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        schema = handler(core_schema)
        found = [each for each in schema.pop("anyOf", []) if each != {"type": "null"}]
        return schema | (found[0] if len(found) == 1 else {"anyOf": found} if found else {})


NOT_NULL = _NotNull()

# A field that may be left out, but not be null.
Given = Annotated[Item | None, BeforeValidator(_given), NOT_NULL]

# Grids, and the sizes of the vendor library's matrix product, are counted in 32 bits.
MAX_SIZE = 2**31 - 1


def _countable(value: int) -> int:
    if value > MAX_SIZE:
        raise problem("FG402", f"a size may be at most {MAX_SIZE}, found the number {value}")
    return value


PositiveInt = Annotated[int, Field(gt=0), AfterValidator(_countable), Plain("a positive whole number")]
