"""The boxes of a drawing: what they say, line by line, and how long their bars are."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from fusegen.explain import model
from fusegen.explain.wording import size, time
from fusegen.plan.programs.epilogue import EPILOGUE

COLUMNS = 42
"""Characters of a line in a box."""


@dataclass(frozen=True)
class Line:
    """A line of text. style: `title`, `plain` or `muted`."""

    text: str
    style: str = "plain"


@dataclass(frozen=True)
class Box:
    """kind: its colours. share: the length of its bar, from 0 to 1; None: it has none."""

    kind: Literal["operator", "kernel", "product"]
    lines: tuple[Line, ...]
    share: float | None = None


@dataclass(frozen=True)
class Stack:
    """Boxes that follow one another."""

    caption: tuple[Line, ...]
    boxes: tuple[Box, ...]


def columns_of(text: str) -> int:
    """The width of a text in columns of a fixed-width font: East Asian characters have two."""
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in text)
    return len(text) + wide


def wrap(text: str, columns: int = COLUMNS) -> list[str]:
    """Lines of at most so many columns, broken at spaces, and within longer words after an underscore where there is
    one in the second half of the line."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if columns_of(joined) <= columns:
            lines[-1] = joined
            continue
        if lines[-1]:
            lines.append("")
        while columns_of(word) > columns:
            head = _head(word, columns)
            lines[-1:] = [head, ""]
            word = word[len(head) :]
        lines[-1] = word
    return lines


def _head(word: str, columns: int) -> str:
    """The part of a word that goes into one line."""
    end = len(word)
    while columns_of(word[:end]) > columns:
        end -= 1
    cut = word.rfind("_", end // 2, end) + 1
    return word[: cut or end]


def lines(text: str, style: str = "plain") -> list[Line]:
    """A text as lines that fit a box."""
    return [Line(each, style) for each in wrap(text)]


def stacks(report: model.Report, variant: model.Variant, program: model.Program) -> tuple[Stack, Stack]:
    """One direction: eager PyTorch's operators, and the kernels that replace them."""
    total = next(each for each in variant.totals if each.direction == program.direction)
    moves = [(each, each.forward if program.direction == "forward" else each.backward) for each in variant.operators]
    kernels = program.schedule.kernels
    longest = max([1, *(each.bytes for _, each in moves), *(each.bytes for each in kernels)])
    eager = [_operator(each, m, longest) for each, m in moves if m.bytes or not each.is_product]
    product = _product(report, program, total.eager_product, total.eager_made_by)
    launched = sum(m.bytes > 0 for _, m in moves)
    figures = f"{_count(launched)}, {size(total.eager_bytes)}, {time(total.eager_microseconds)}"
    left = Stack(_caption("eager PyTorch", figures), _ordered(product, eager, program.direction))
    saved = {each.name for each in variant.saved}
    fused = [_kernel(kernel, saved, longest) for kernel in kernels]
    product = _product(report, program, total.fused_product, total.fused_made_by)
    count = _count(len(fused))
    if program.taken == EPILOGUE:
        product, fused, count = [], [_with_tail(product[0], fused[0])], "in the product's kernel"
    figures = f"{count}, {size(total.fused_bytes)}, {time(total.fused_microseconds)}"
    ordered = [*product, *fused] if program.direction == "forward" else [*fused, *product]
    return left, Stack(_caption(f"fusegen, schedule {program.taken}", figures), tuple(ordered))


def _count(number: int) -> str:
    return "1 kernel" if number == 1 else f"{number} kernels"


def _caption(title: str, figures: str) -> tuple[Line, ...]:
    return tuple([*lines(title, "title"), *lines(figures, "muted")])


def _ordered(product: Sequence[Box], operators: Sequence[Box], direction: str) -> tuple[Box, ...]:
    """Backward, the last operator comes first."""
    return (*product, *operators) if direction == "forward" else (*reversed(operators), *product)


def _operator(operator: model.Operator, moves: model.Moves, longest: int) -> Box:
    title = lines(operator.step, "title")
    if not moves.bytes:
        return Box("operator", (*title, Line("passes the gradient on", "muted")))
    what = [Line("the gradient of its bias")] if operator.is_product else []
    figures = Line(f"{size(moves.bytes)}, {time(moves.microseconds)}", "muted")
    return Box("operator", (*title, *what, figures), moves.bytes / longest)


def _kernel(kernel: model.Kernel, saved: Iterable[str], longest: int) -> Box:
    found = [*lines(kernel.name, "title"), *lines(f"{kernel.kind}: {kernel.purpose}")]
    stored = [tensor.name for tensor in kernel.writes if tensor.name in saved]
    written = [tensor.name for tensor in kernel.writes if tensor.name not in saved]
    named = (("reads", [tensor.name for tensor in kernel.reads]), ("writes", written), ("saves", stored))
    found += chain.from_iterable(_names(verb, names) for verb, names in named if names)
    found.append(Line(f"{size(kernel.bytes)}, {time(kernel.microseconds)}", "muted"))
    return Box("kernel", tuple(found), kernel.bytes / longest)


def _names(verb: str, names: Sequence[str]) -> Iterator[Line]:
    """A list of names after what is done with them, the further lines indented."""
    indent = 7
    for index, line in enumerate(wrap(", ".join(names), COLUMNS - indent)):
        yield Line(f"{verb if not index else '':{indent}}{line}")


def _product(
    report: model.Report, program: model.Program, microseconds: float | None, made_by: str | None
) -> list[Box]:
    """The product of a linear layer, or a convolution."""
    if report.convolution is not None:
        what = "convolution" if program.direction == "forward" else "its two gradients"
        name = lines(f"{report.convolution.name}: {what}", "title")
        return [Box("product", (*name, *lines(f"by {report.convolution.by}")))]
    if report.contraction is None:
        return []
    what = "product" if program.direction == "forward" else "two products"
    found = [*lines(f"{report.contraction.name}: {what}", "title"), *lines(f"by {made_by}")]
    found += [] if microseconds is None else [Line(time(microseconds), "muted")]
    return [Box("product", tuple(found))]


def _with_tail(product: Box, tail: Box) -> Box:
    """A product and what runs in its epilogue, as the one kernel that they are."""
    return replace(tail, lines=(*product.lines, *tail.lines))
