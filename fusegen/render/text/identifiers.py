"""How C++ spells what a chain names.

Names of a chain (inputs, parameters, constants, steps, and the values that follow from them) may be keywords of C++,
macros of a header, or what the emitted code calls something of its own. So no such name stands in C++ as it is: what
stands there is the name, an underscore and a word of `ENDINGS`, which says what this is of the named. Two names never
give one spelling, as no ending contains an underscore. No keyword, no macro of the included headers and no name of the
emitted code's own ends so; tests/render/test_identifiers.py holds templates, support and headers to that.
"""

from __future__ import annotations

IN_EVERY_FILE = {
    "v": "the value itself: of an element, a channel, a row, a group, or a constant",
    "ptr": "where it lies in memory",
    "type": "the type of its elements",
    "arg": "an argument of an op or a launcher",
    "own": "how many rows a tensor has that has fewer than others",
    "draw": "the dropout that draws the value",
}
IN_BINDING = {
    "in": "an argument, made contiguous",
    "out": "a result",
    "dtype": "the dtype of an argument",
}
ENDINGS = {**IN_EVERY_FILE, **IN_BINDING}


def identifier(name: str, ending: str) -> str:
    """The name as C++ has it. ending: one of ENDINGS."""
    if ending not in ENDINGS:
        raise KeyError(ending)
    return f"{name}_{ending}"


def value(name: str) -> str:
    return identifier(name, "v")


def type_name(name: str) -> str:
    """A program's name as C++ has it for types: `TrainForward` of `train_forward`."""
    return "".join(part.capitalize() for part in name.split("_"))
