"""How C++ spells what a chain names.

Names of a chain (inputs, parameters, constants, steps, and the values that follow from them) may be keywords of C++,
macros of a header, or what the emitted code calls something of its own. So no such name stands in C++ as it is: what
stands there is the name, an underscore and a word of `ENDINGS`, which says what this is of the named. Two names never
give one spelling, as no ending contains an underscore. No keyword, no macro of the included headers and no name of the
emitted code's own ends so; tests/render/test_spelling.py holds templates, support and headers to that.
"""

from __future__ import annotations

ENDINGS = {
    "v": "the value itself: of an element, a column, a segment, or a constant",
    "ptr": "where it lies in memory",
    "type": "the type of its elements",
    "next": "elements that are on their way from memory",
    "in": "elements as they were loaded; in bindings.cpp an argument, made contiguous",
    "out": "elements to store; in bindings.cpp a result",
    "arg": "an argument of an op or a launcher",
    "dtype": "the dtype of an argument",
    "tile": "elements in shared memory",
    "held": "elements that a row kernel holds in registers",
    "kept": "an element that is on its way to its tile",
    "staged": "values of columns in shared memory",
    "terms": "what is added to a sum, or enters moments",
    "summed": "the sum that a mean is made of",
    "all": "the sum of all threads",
    "shifted": "sums of values less the first one",
    "seen": "how many values those are of",
    "distances": "distances from a mean",
    "squares": "their squares",
    "rest": "their sum, zero but for rounding",
    "mean": "the mean among moments",
    "m2": "the sum of squares among moments",
}


def spell(name: str, ending: str) -> str:
    """The name as C++ has it. ending: one of ENDINGS."""
    if ending not in ENDINGS:
        raise KeyError(ending)
    return f"{name}_{ending}"


def value(name: str) -> str:
    return spell(name, "v")


def type_name(name: str) -> str:
    """A program's name as C++ has it for types: `TrainForward` of `train_forward`."""
    return "".join(part.capitalize() for part in name.split("_"))
