"""The one Jinja2 environment."""

from __future__ import annotations

import hashlib
import os
import sys
import textwrap
from contextlib import suppress
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path

import jinja2
from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket

from fusegen.paths import templates_directory


class CompiledTemplates(FileSystemBytecodeCache):
    """Templates as Python code, where Python keeps its own and as carefully: they are a third of a build with nothing
    to do. One is used for the source, the Jinja2 and the environment that it was made of, else made again.
    """

    def __init__(self, templates: Path) -> None:
        directory = Path(cache_from_source(os.fspath(templates / "template.py"))).parent
        super().__init__(os.fspath(directory), f"%s.{sys.implementation.cache_tag}.jinja2")
        self._made_by = jinja2.__version__ + hashlib.sha256(Path(__file__).read_bytes()).hexdigest()

    def get_source_checksum(self, source: str) -> str:
        return super().get_source_checksum(self._made_by + source)

    def load_bytecode(self, bucket: Bucket) -> None:
        try:
            super().load_bytecode(bucket)
        except Exception:  # whatever it is that is broken: the template is compiled again
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        if sys.dont_write_bytecode:
            return
        with suppress(OSError):  # a directory that is not ours, a full disk
            directory = Path(self.directory)
            directory.mkdir(parents=True, exist_ok=True)
            super().dump_bytecode(bucket)
            (directory / (self.pattern % bucket.key)).chmod(0o644)  # for all users of an installation


@cache
def environment() -> Environment:
    """That of fusegen's own templates."""
    return environment_of(templates_directory())


def environment_of(templates: Path) -> Environment:
    """Strict about names, and without HTML escaping: what it renders is source code."""
    env = Environment(
        loader=FileSystemLoader(templates, encoding="utf-8"),
        bytecode_cache=CompiledTemplates(templates),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        newline_sequence="\n",
    )
    env.filters["wrap"] = wrap
    return env


def render(template: str, **context: object) -> str:
    return environment().get_template(template).render(context)


def wrap(text: str, width: int, indent: int) -> str:
    """`text` broken at spaces; lines after the first are indented."""
    return textwrap.fill(
        text, width, initial_indent="", subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
