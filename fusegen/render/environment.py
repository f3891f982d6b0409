"""The one Jinja2 environment."""

from __future__ import annotations

import textwrap
from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fusegen.paths import templates_directory


@cache
def environment() -> Environment:
    """Strict about names, and without HTML escaping: what it renders is source code."""
    env = Environment(
        loader=FileSystemLoader(templates_directory(), encoding="utf-8"),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        newline_sequence="\n",
    )
    env.filters["wrap"] = wrap
    env.filters["without_index"] = lambda text: text.removesuffix("[v]")
    return env


def render(template: str, **context: object) -> str:
    return environment().get_template(template).render(context)


def wrap(text: str, width: int, indent: int) -> str:
    """`text` broken at spaces; lines after the first are indented."""
    return textwrap.fill(
        text, width, initial_indent="", subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
