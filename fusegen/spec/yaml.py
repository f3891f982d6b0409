"""Reads a YAML 1.2 file from a stranger into a Document.

Works on the parser's events, not on its nodes: an alias is then never followed and a nesting limit stops
the parser early, so no file of the accepted size can make this slow or deep.
"""

from __future__ import annotations

import bisect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ruamel.yaml
from ruamel.yaml import events
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError

from fusegen.errors import Diagnostic, Location, SpecError, quote
from fusegen.spec.document import Document, DocumentPath
from fusegen.spec.scalars import BadNumber, resolve
from fusegen.spec.wording import found

MAX_BYTES = 256 * 1024
MAX_DEPTH = 16

# What editors take for the end of a line. str.splitlines knows more, and so do versions of YAML before 1.2.
_LINE_BREAK = re.compile("\r\n|[\n\r]")


def read_yaml(path: str | os.PathLike[str], *, lenient: bool = False) -> Document:
    """Read the file, or raise SpecError with every mistake in it.

    With `lenient`, mistakes that leave the structure readable (a duplicate key, a refused tag) are left
    in `document.problems`, for validate() to report together with its own; a broken file still raises.
    """
    file = Path(path).as_posix()
    start = Location(file, 1, 1)
    try:
        with open(path, "rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError([Diagnostic("FG101", f"cannot read the file: {reason}", start)]) from None
    if len(content) > MAX_BYTES:
        raise SpecError([Diagnostic("FG103", f"the file is larger than {MAX_BYTES // 1024} KiB", start)])
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        place = _place(content[: error.start].decode("utf-8").removeprefix("\ufeff"), file)
        raise SpecError([Diagnostic("FG102", "the file is not UTF-8 text", place)]) from None
    return parse_yaml(text, file, lenient=lenient)


def parse_yaml(text: str, file: str, *, lenient: bool = False) -> Document:
    """As read_yaml, from text; `file` is what messages call it."""
    reader = _Reader(text.removeprefix("\ufeff"), file)
    document = reader.read()
    if document.problems and not lenient:
        raise SpecError(document.problems)
    return document


def _place(before: str, file: str) -> Location:
    """Behind this text."""
    lines = _LINE_BREAK.split(before)
    return Location(file, len(lines), len(lines[-1]) + 1)


class _Reader:
    """One pass over the events of one file."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.lines = tuple(_LINE_BREAK.split(text))
        self.starts = [0, *(match.end() for match in _LINE_BREAK.finditer(text))]
        self.values: dict[DocumentPath, Location] = {}
        self.keys: dict[DocumentPath, Location] = {}
        self.problems: list[Diagnostic] = []

    def read(self) -> Document:
        stream = self._events()
        data: Any = None
        documents = 0
        for event in stream:
            if isinstance(event, events.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._fatal("FG110", "a spec is one YAML document; a second begins here", event)
                if event.version or event.tags:
                    self._problem("FG106", "a %YAML or %TAG directive is not allowed in a spec", event)
            elif isinstance(event, events.NodeEvent):
                data = self._value(stream, event, (), 1)
                if not isinstance(data, dict):
                    raise self._fatal("FG111", "the top level of a spec must be a mapping of keys to values", event)
        if documents == 0:
            start = Location(self.file, 1, 1)
            raise SpecError([*self.problems, Diagnostic("FG111", "the file holds no YAML document", start)])
        return Document(self.file, data, self.lines, self.values, self.keys, tuple(self.problems))

    def _events(self) -> Iterator[Any]:
        """The parser's events; whatever it raises becomes a SpecError."""
        # pure: the C parser has other positions and speaks YAML 1.1.
        parser = ruamel.yaml.YAML(typ="safe", pure=True)
        try:
            yield from parser.parse(self.text)
        except ReaderError as error:
            message = f"YAML does not allow the character U+{ord(self.text[error.position]):04X}"
            raise self._broken(message, error.position) from None
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            context = error.context
            if context and mark and error.context_mark and error.context_mark.line != mark.line:
                context += f" that begins on line {self._at(error.context_mark.index).line}"
            message = ": ".join(part for part in (context, error.problem) if part)
            message = message.replace("'<stream end>'", "the end of the file")
            hint = "indent with spaces, not tabs" if r"'\t'" in message else None
            raise self._broken(message or "not well-formed YAML", mark.index if mark else 0, hint) from None
        except (YAMLError, ValueError, LookupError, AttributeError, AssertionError, TypeError):
            # The parser answers some malformed input with an accident instead of an error.
            raise self._broken("not well-formed YAML", 0) from None

    def _value(self, stream: Iterator[Any], event: Any, path: DocumentPath | None, depth: int) -> Any:
        """The data that begins with `event`. Positions are recorded unless `path` is None."""
        if path is not None:
            # Of a value that was left empty, the parser only knows where the next thing begins.
            is_empty = isinstance(event, events.ScalarEvent) and event.implicit[0] and not event.value
            self.values[path] = (self.keys.get(path) if is_empty else None) or self._place(event)
        if isinstance(event, events.AliasEvent):
            self._problem("FG106", f"a YAML alias (*{event.anchor}) is not allowed in a spec", event)
            return None
        if event.anchor is not None:
            self._problem("FG106", f"a YAML anchor (&{event.anchor}) is not allowed in a spec", event)
        if event.tag is not None:
            self._problem("FG106", "a YAML tag is not allowed in a spec", event)
        if isinstance(event, events.ScalarEvent):
            return self._scalar(event)
        if depth > MAX_DEPTH:
            raise self._fatal("FG107", f"nested more than {MAX_DEPTH} levels deep", event)
        if isinstance(event, events.MappingStartEvent):
            return self._mapping(stream, path, depth)
        return self._sequence(stream, path, depth)

    def _scalar(self, event: Any) -> str | int | float | bool | None:
        text = str(event.value)
        if any("\ud800" <= char <= "\udfff" for char in text):
            # JSON writes some characters as two escapes. One alone is none: it could be neither printed nor written.
            try:
                text = text.encode("utf-16", "surrogatepass").decode("utf-16")
            except UnicodeDecodeError:
                self._problem("FG104", "the text holds half a surrogate pair", event)
                return None
        if not event.implicit[0]:
            return text  # quoted, or a block, or under a tag that has been refused
        try:
            return resolve(text)
        except BadNumber as error:
            self._problem("FG109", str(error), event)
            return None

    def _sequence(self, stream: Iterator[Any], path: DocumentPath | None, depth: int) -> list[Any]:
        result: list[Any] = []
        for event in stream:
            if isinstance(event, events.SequenceEndEvent):
                break
            below = None if path is None else (*path, len(result))
            result.append(self._value(stream, event, below, depth + 1))
        return result

    def _mapping(self, stream: Iterator[Any], path: DocumentPath | None, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        first: dict[str, int] = {}
        for event in stream:
            if isinstance(event, events.MappingEndEvent):
                break
            key = self._key(stream, event, depth)
            # A refused or repeated key keeps nothing: its value is read only for the mistakes in it.
            below = None
            if key is not None and key in first:
                message = f"the key {quote(key)} occurs twice; the first is on line {first[key]}"
                self._problem("FG105", message, event)
                key = None
            elif key is not None:
                first[key] = self._place(event).line
                if path is not None:
                    below = (*path, key)
                    self.keys[below] = self._place(event)
            value = self._value(stream, next(stream), below, depth + 1)
            if key is not None:
                result[key] = value
        return result

    def _key(self, stream: Iterator[Any], event: Any, depth: int) -> str | None:
        """A mapping's key, or None when it was refused."""
        if isinstance(event, events.ScalarEvent) and event.value == "<<" and event.implicit[0]:
            self._problem("FG106", "a YAML merge key (<<) is not allowed in a spec", event)
            return None
        before = len(self.problems)
        key = self._value(stream, event, None, depth + 1)
        if len(self.problems) > before:
            return None
        if not isinstance(key, str):
            self._problem("FG108", f"a key must be text, found {found(key)}", event)
            return None
        return key

    def _place(self, event: Any) -> Location:
        return self._at(event.start_mark.index)

    def _at(self, index: int) -> Location:
        """The place of a character. The parser's own columns leave out byte order marks."""
        line = bisect.bisect_right(self.starts, index)
        return Location(self.file, line, index - self.starts[line - 1] + 1)

    def _diagnostic(self, code: str, message: str, place: Location, hint: str | None = None) -> Diagnostic:
        source = self.lines[place.line - 1] if place.line <= len(self.lines) else None
        return Diagnostic(code, message, place, hint, source)

    def _problem(self, code: str, message: str, event: Any) -> None:
        self.problems.append(self._diagnostic(code, message, self._place(event)))

    def _fatal(self, code: str, message: str, event: Any) -> SpecError:
        """The error that ends reading, with the mistakes found on the way to it."""
        return SpecError([*self.problems, self._diagnostic(code, message, self._place(event))])

    def _broken(self, message: str, index: int, hint: str | None = None) -> SpecError:
        return SpecError([*self.problems, self._diagnostic("FG104", message, self._at(index), hint)])
