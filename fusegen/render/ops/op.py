"""One torch op as bindings.cpp has it: the table of what it takes and makes, in the words of torch_table.h."""

from __future__ import annotations

from dataclasses import dataclass, field

from fusegen.ir.axes import Dim
from fusegen.ir.multiples import factors
from fusegen.plan.programs.model import Role
from fusegen.render.text.identifiers import identifier
from fusegen.render.text.layout import WIDTH

INNER, IMAGE_SHAPE = "kInner", "kOuter"
"""The sizes of tensors of images: see torch_images.h."""
_SYMBOLS = {"rows": "kRows", "channels": "kChannels", "groups": "kGroups", "samples": "kSamples", "windows": "kWindows"}
_SYMBOLS |= {"in_features": "kInFeatures"}
_ROLES = {"activation": "kActivation", "output": "kOutput", "parameter": "kParameter", "accumulator": "kAccumulator"}
_ROLES |= {"mask": "kBool", "tap": "kByte", **dict.fromkeys(("count", "index", "seed"), "kLong")}
PIECES = ("_operand_pieces", "_weight_pieces")
_SHORT = ("size", "number", "numbers", "flags")
_IS_ARGUMENT = ("tensor", *_SHORT)


@dataclass(frozen=True)
class Field:
    """A row of an op's table. name: as the schema has it. kind: of an argument "tensor", "size", "number", "numbers" or
    "flags"; of what the op makes "result", or "" where it is not returned. text: in C++."""

    name: str
    kind: str
    text: str
    is_optional: bool = False

    @property
    def is_argument(self) -> bool:
        return self.kind in _IS_ARGUMENT


@dataclass
class Op:
    """Everything that bindings.cpp says of one op. struct: the type of its launcher's arguments. returns: a value of
    `Returns`. traits: calls that say more of it, in C++. needs: what the flags of its last argument stand for.
    is_chunked: whether a call of it is many, of some rows each. overwritten: the argument whose memory a second op of
    the table takes for the product's gradient; empty where there is none."""

    name: str
    function: str
    struct: str
    returns: str
    fields: list[Field] = field(default_factory=list)
    traits: list[str] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)
    is_chunked: bool = False
    overwritten: str = ""

    @property
    def arguments(self) -> list[Field]:
        return [each for each in self.fields if each.is_argument]

    @property
    def lines(self) -> list[str]:
        """The rows of the table in C++: one a line for tensors, and together what is of one word each."""
        lines: list[str] = []
        is_open = False
        for each in self.fields:
            text, short = f"{each.text},", each.kind in _SHORT or each.name in PIECES
            if short and lines and is_open and len(lines[-1]) + len(text) < WIDTH - 4:
                lines[-1] += f" {text}"
            else:
                lines.append(text)
            is_open = short
        return lines

    @property
    def results(self) -> list[str]:
        """The names of what a forward op returns, in order."""
        return [each.name for each in self.fields if each.kind == "result"]


def dtype_field(role: Role) -> str:
    """What the module's table of dtypes calls a role."""
    kind, _, name = role.partition(" ")
    return identifier(name, "dtype") if name and kind in ("input", "output") else role


def role_text(role: Role) -> str:
    """C++: the role of a tensor."""
    return _ROLES.get(role) or dtype_field(role)


def size_text(dim: Dim, symbols: dict[str, str]) -> str:
    """C++: a size of a tensor. symbols: those of the op, besides rows and the like."""
    number, name = factors(dim)
    if name is None:
        return str(number)
    symbol = symbols.get(name) or _SYMBOLS[name]
    return symbol if number == 1 else f"{number} * {symbol}"
