"""Places boxes and their text, by the widths of characters in a fixed-width font."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fusegen.explain.boxes import COLUMNS, Box, Line, Stack

FONT, CHARACTER, LINE = 12, 7.4, 17.0
"""Pixels: of the font, of a character at most (fixed-width fonts have 0.55 to 0.61 of their size), and of a line."""
PADDING, BAR, GAP = 12.0, 5.0, 20.0
WIDTH = COLUMNS * CHARACTER + 2 * PADDING
"""Of a box."""
_MARGIN = 1.0


@dataclass(frozen=True)
class Text:
    """y: of the baseline."""

    x: float
    y: float
    text: str
    style: str


@dataclass(frozen=True)
class Rectangle:
    """style: a box's kind, or `bar`."""

    x: float
    y: float
    width: float
    height: float
    style: str


@dataclass(frozen=True)
class Arrow:
    """From above to below."""

    x: float
    top: float
    bottom: float


@dataclass(frozen=True)
class Drawing:
    """Everything that is drawn, in pixels."""

    width: float
    height: float
    rectangles: tuple[Rectangle, ...] = ()
    arrows: tuple[Arrow, ...] = ()
    texts: tuple[Text, ...] = ()

    def moved(self, x: float, y: float) -> Drawing:
        """The drawing, `x` pixels further to the right and `y` further down."""
        return Drawing(
            self.width + x,
            self.height + y,
            tuple(Rectangle(r.x + x, r.y + y, r.width, r.height, r.style) for r in self.rectangles),
            tuple(Arrow(a.x + x, a.top + y, a.bottom + y) for a in self.arrows),
            tuple(Text(t.x + x, t.y + y, t.text, t.style) for t in self.texts),
        )


def together(drawings: Sequence[Drawing]) -> Drawing:
    """Drawings on one sheet, each where it is."""
    return Drawing(
        max(each.width for each in drawings),
        max(each.height for each in drawings),
        tuple(r for each in drawings for r in each.rectangles),
        tuple(a for each in drawings for a in each.arrows),
        tuple(t for each in drawings for t in each.texts),
    )


def written(lines: Sequence[Line], x: float = 0.0) -> Drawing:
    """Lines of text one below the other."""
    texts = tuple(Text(x, (index + 1) * LINE - 5, line.text, line.style) for index, line in enumerate(lines))
    return Drawing(WIDTH, len(lines) * LINE, texts=texts)


def drawn(stack: Stack) -> Drawing:
    """A stack: its caption, and the boxes with arrows from each to the next."""
    parts = [written(stack.caption, _MARGIN).moved(0, PADDING)]
    y = parts[0].height + PADDING
    for index, box in enumerate(stack.boxes):
        if index:
            parts.append(Drawing(0, 0, arrows=(Arrow(WIDTH / 2, y + 2, y + GAP - 2),)))
            y += GAP
        parts.append(_box(box).moved(0, y))
        y = parts[-1].height
    return replace(together(parts), width=WIDTH, height=y + _MARGIN)


def _box(box: Box) -> Drawing:
    text = written(box.lines).moved(PADDING, PADDING / 2)
    bottom = text.height + PADDING / 2
    rectangles = [Rectangle(_MARGIN, 0, WIDTH - 2 * _MARGIN, bottom, box.kind)]
    if box.share is not None:
        rectangles[0] = Rectangle(_MARGIN, 0, WIDTH - 2 * _MARGIN, bottom + BAR + 3, box.kind)
        longest = WIDTH - 2 * PADDING
        style = "kernel-bar" if box.kind == "kernel" else "bar"
        rectangles.append(Rectangle(PADDING, bottom - 1, max(1.0, longest * box.share), BAR, style))
    return Drawing(WIDTH, rectangles[0].height, tuple(rectangles), texts=text.texts)
