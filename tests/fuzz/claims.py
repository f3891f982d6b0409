"""What holds of every error of a spec, whatever the spec."""

from __future__ import annotations

import re

from fusegen.errors import CODES, Location, SpecError
from fusegen.ops.catalogue import STEPS

# Names of classes of ours and of the libraries, and what tracebacks and reprs are made of.
_CLASSES = {step.__name__ for step in STEPS} | {"SpecModel", "PartialSpec", "Document", "Identifier", "AttributeName"}
_CLASSES |= {"NoneType", "ValidationError", "ScalarNode", "MappingNode", "KeyError", "TypeError", "AttributeError"}
_INTERNAL = re.compile(
    rf"\b(?:{'|'.join(sorted(_CLASSES))})\b|Traceback|<class|<function|pydantic|ruamel|function-|object at 0x|"
    r"Input should|\bValue error\b|\bstr\b|\bdict\b|\btuple\b|\{\w+\}|\bNone\b"
)


def check_text(header: str) -> None:
    """No internal name, and a hint that helps."""
    # What the spec itself says stands in quotes, and may have some.
    own = re.sub(r"'.*'" if header.count("'") % 2 or "''" in header else r"'[^']*'", "''", header)
    assert not _INTERNAL.search(own), header
    assert header.count("did you mean") <= 1, header
    meant = re.search(r"\(did you mean '(.*)'\?\)$", header)
    if "did you mean" in header:
        assert meant, header
        assert not re.search(rf"(?:named|unknown \w+|key) '{re.escape(meant[1])}'", header), header
    assert header == header.strip() and "  " not in own and header.isprintable(), header


def check_error(error: SpecError, file: str, text: str) -> None:
    """Codes of the table, places inside the file, texts for people."""
    lines = re.split("\r\n|[\n\r]", text.removeprefix("\ufeff"))
    assert error.diagnostics
    for diagnostic in error.diagnostics:
        assert diagnostic.code in CODES
        check_text(diagnostic.header())
        if diagnostic.location is not None:
            check_place(diagnostic.location, file, lines)
            assert diagnostic.source in (None, lines[diagnostic.location.line - 1])
    assert str(error).count("error[") >= min(len(error.diagnostics), 100)


def check_place(place: Location, file: str, lines: list[str]) -> None:
    assert place.file == file
    assert 1 <= place.line <= len(lines)
    assert 1 <= place.column <= len(lines[place.line - 1]) + 1
