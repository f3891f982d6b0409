"""Mutants: what is changed in a copy of the kernels' sources, and who has to notice.

All mutants of one copy are compiled into one library, and `fusegen_mutant` says which of them runs: a statement
becomes `if (fusegen_mutant == 7) { changed } else { original }`, an expression `(fusegen_mutant == 7 ? changed :
original)`. With 0 everything is as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# What a verdict says of a mutant that was caught, as regular expressions.
SINCE = "since the last barrier"
RACE = rf"of shared memory, which (thread \(.*\) has|other threads have) (written|read) {SINCE}"
# A reader too early may also come before anything was written.
EARLY = rf"of shared memory, which (nothing has written|(thread \(.*\) has|other threads have) (written|read) {SINCE})"
UNWRITTEN_SHARED = "of shared memory, which nothing has written"
BLOCKS = "which another block has (written|read)"
UNWRITTEN = "reads global memory .*, which nothing has written"
BEYOND_SHARED = r"(reads|writes) byte \d+ of the block's \d+ bytes of shared memory \["
MISALIGNED = "makes a misaligned access"


# The header of each function that reduces values of several threads.
HEADER_OF = {
    function: header
    for header, functions in {
        "moments.cuh": ("add_value", "add_values", "correct", "moments_of", "moments_of_parts", "without"),
        "reduce_columns.cuh": ("sum_over_rows_of_warp", "sum_over_y"),
        "reduce_lanes.cuh": (
            "moments_over_warps", "reduce_in_lanes", "reduce_in_warp", "reduce_over_block", "reduce_over_warps",
            "sum_of",
        ),
        "reduce_rows.cuh": ("sum_over_rows",),
        "thread_positions.cuh": ("position_of",),
    }.items()
    for function in functions
}  # fmt: skip
REDUCTION_SITE = r"(moments|reduce_\w+).cuh:\d+"


def nan(*names: str) -> str:
    """These results, and maybe others, have elements that nothing has written."""
    return "".join(rf"(?=.*\bNaN in {name}\b)" for name in names)


def wrong(*names: str) -> str:
    """These results, and maybe others, are finite and wrong."""
    return "".join(rf"(?=.*\bwrong {name}\b)" for name in names)


@dataclass(frozen=True)
class Mutant:
    """One change.

    old is found in `file` of templates/support, inside of the function `within`, as occurrence `nth` of exactly `of`;
    white space counts as one blank. run names the scenario that has to notice, caught is a regular expression for its
    verdict, and kernel is the one that a reported error must name.
    """

    name: str
    run: str
    file: str
    within: str | None
    old: str
    new: str
    caught: str
    kernel: str | None = None
    nth: int = 0
    of: int = 1

    def span(self, text: str) -> tuple[int, int]:
        """Where `old` is in the source's text."""
        start, end = (0, len(text)) if self.within is None else function(text, self.within)
        pattern = re.compile(r"\s+".join(re.escape(word) for word in self.old.split()))
        found = [match.span() for match in pattern.finditer(text, start, end)]
        assert len(found) == self.of, f"{self.name}: {self.old!r} occurs {len(found)} times, not {self.of}"
        return found[self.nth]

    @property
    def is_statement(self) -> bool:
        return self.old.endswith((";", "}"))


def function(text: str, name: str) -> tuple[int, int]:
    """Where the definition of the function is: from its name to the brace that ends its body."""
    heads = [match for match in re.finditer(rf"\b{name}\(", text) if _is_definition(text, match.end())]
    assert len(heads) == 1, f"{name} is defined {len(heads)} times"
    body = text.index("{", _closing(text, heads[0].end(), "()"))
    return heads[0].start(), _closing(text, body + 1, "{}")


def _is_definition(text: str, at: int) -> bool:
    """Whether the parameter list that starts there is followed by a body."""
    return re.match(r"\s*(?:const\s*)?\{", text[_closing(text, at, "()") :]) is not None


def _closing(text: str, at: int, pair: str) -> int:
    """The end of what an opening parenthesis or brace before `at` begins."""
    depth = 1
    while depth:
        depth += {pair[0]: 1, pair[1]: -1}.get(text[at], 0)
        at += 1
    return at


def with_mutants(text: str, mutants: Iterable[tuple[int, Mutant]]) -> str:
    """The source with every mutant in it, each under its number. Places are the same, apart, or one in another."""
    at: dict[tuple[int, int], list[tuple[int, Mutant]]] = {}
    for number, mutant in mutants:
        at.setdefault(mutant.span(text), []).append((number, mutant))
    spans = sorted(at, key=lambda span: (span[0], -span[1]))

    def rewrite(start: int, end: int) -> str:
        parts = []
        while spans and spans[0][0] < end:
            span = spans.pop(0)
            assert start <= span[0] and span[1] <= end, f"mutants overlap: {text[slice(*span)]!r}"
            parts += [text[start : span[0]], _choice(rewrite(*span), at[span])]
            start = span[1]
        return "".join(parts) + text[start:end]

    return rewrite(0, len(text))


def _choice(original: str, group: list[tuple[int, Mutant]]) -> str:
    if group[0][1].is_statement:
        branches = "".join(f"if (fusegen_mutant == {number}) {{ {each.new} }} else " for number, each in group)
        return f"{branches}{{ {original} }}"
    choices = "".join(f"fusegen_mutant == {number} ? ({each.new}) : " for number, each in group)
    return f"({choices}({original}))"
