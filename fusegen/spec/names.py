"""Names that may be written into Python and C++ source, and nothing else may."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from fusegen.errors import quote
from fusegen.paths import SUPPORT
from fusegen.spec.base import Plain, problem
from fusegen.spec.reserved import (
    CONSTRUCTOR_ARGUMENTS,
    MODULE_ATTRIBUTES,
    MODULE_GLOBALS,
    MODULE_PREFIX,
    PYTHON_KEYWORDS,
    PYTHON_NAMES,
    WINDOWS_DEVICES,
)
from fusegen.spec.wording import nearest

MAX_NAME_LENGTH = 64

# ASCII only: letters that look alike would let two names pass for one, and C++ compilers differ on others.
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

# The number comes first, as in PyTorch's own modules, and has at most four digits.
_MULTIPLE = re.compile(r"([1-9][0-9]{0,3}) *\* *([A-Za-z][A-Za-z0-9_]*)")

# C++ has no say: fusegen/render/text/identifiers.py writes names so that they mean nothing else there.
_RESERVED = (
    (PYTHON_KEYWORDS, "is a keyword of Python"),
    (PYTHON_NAMES, "is used by the generated code itself"),
)

# Directories beside the generated packages that are not packages.
_TAKEN_PACKAGES = frozenset({SUPPORT})


def check_identifier(name: str) -> str:
    """The name itself, if it may stand in generated source; else a problem FG206."""
    shown = quote(name)
    if len(name) > MAX_NAME_LENGTH:
        raise problem("FG206", f"the name {shown} is longer than {MAX_NAME_LENGTH} characters")
    if name.startswith("_"):
        raise problem("FG206", f"the name {shown} begins with an underscore")
    if not _IDENTIFIER.fullmatch(name):
        rule = "a name is a letter, then letters, digits and underscores, all ASCII"
        raise problem("FG206", f"{shown} is not a name", rule)
    if "__" in name:
        raise problem("FG206", f"the name {shown} has two underscores in a row, which C++ reserves")
    for words, why in _RESERVED:
        if name in words:
            raise problem("FG206", f"the name {shown} {why}")
    return name


def passes(check: Callable[[str], str], name: str) -> bool:
    """Whether a name is one that this check lets through."""
    try:
        check(name)
    except PydanticCustomError:
        return False
    return True


def is_spoilt(name: str, known: Sequence[str]) -> bool:
    """Whether the name is missing only because the one that was meant is not written as a name at all."""
    close = nearest(name, known)
    return close is not None and not _IDENTIFIER.fullmatch(close)


def check_attribute(name: str) -> str:
    """As check_identifier, and no attribute that every module has already; else a problem FG207."""
    # First: `float` is both, and that it is a method of the module is the less surprising answer.
    if name in MODULE_ATTRIBUTES:
        raise problem("FG207", f"the name {quote(name)} is an attribute of every nn.Module")
    if name.startswith(MODULE_PREFIX):
        raise problem("FG207", f"the name {quote(name)} begins as the attributes that every generated module has")
    return check_identifier(name)


def check_argument(name: str) -> str:
    """As check_attribute, and no argument that constructors have besides those of the spec."""
    if name in CONSTRUCTOR_ARGUMENTS:
        raise problem("FG207", f"the name {quote(name)} is an argument of generated constructors")
    return check_attribute(name)


def check_class(name: str) -> str:
    """As check_identifier, and no name that the generated module looks up beside the class."""
    if name in MODULE_GLOBALS:
        raise problem("FG206", f"the name {quote(name)} is used by the generated code itself")
    return check_identifier(name)


def check_spec_name(name: str) -> str:
    """As check_identifier, and usable as a package beside the others, on file systems without case too."""
    if name.lower() in _TAKEN_PACKAGES:
        raise problem("FG206", f"the name {quote(name)} is taken by fusegen's own part of the output")
    if name.lower() in WINDOWS_DEVICES:
        message = f"the name {quote(name)} is a device on Windows, where no directory can have it"
        raise problem("FG206", message)
    return check_identifier(name)


def is_spec_name(name: str) -> bool:
    """Whether a spec may be called that, and its class as it follows from the name."""
    return passes(check_spec_name, name) and passes(check_class, camel_case(name))


def camel_case(name: str) -> str:
    """The class that a spec's name gives: matmul_bn -> MatmulBn."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def check_width(text: str) -> str:
    """A symbol, or a multiple of one such as "2 * hidden", with one space on each side of the sign."""
    match = _MULTIPLE.fullmatch(text)
    if match is None:
        return check_identifier(text)
    check_identifier(match[2])
    return match[2] if match[1] == "1" else f"{match[1]} * {match[2]}"


def symbol_of(written: Any) -> Any:
    """The symbol of a multiple; all else as it is."""
    match = _MULTIPLE.fullmatch(written) if isinstance(written, str) else None
    return match[2] if match else written


def free_name(wanted: str, taken: set[str]) -> str:
    """The name, or where that is taken one like it."""
    number, name = 1, wanted
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    return name


# A name of a dim, an input or a saved value.
Identifier = Annotated[str, AfterValidator(check_identifier), Plain("a name")]

# The name of a dim, or a multiple of its size.
WidthName = Annotated[str, AfterValidator(check_width), Plain("a name, 2 * name")]

# A name that becomes an attribute of the module: parameters, submodules, constants.
AttributeName = Annotated[str, AfterValidator(check_attribute), Plain("a name")]

# One of the constructor's, which may become an attribute, too.
ArgumentName = Annotated[str, AfterValidator(check_argument), Plain("a name")]

ClassName = Annotated[str, AfterValidator(check_class), Plain("a name")]

SpecName = Annotated[str, AfterValidator(check_spec_name), Plain("a name")]
