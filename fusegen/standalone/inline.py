"""Sources with what they include written into them, so that one text compiles alone."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fusegen.render.files.includes import QUOTED, include_path

_ONCE = "#pragma once"


def inline(root: str, files: Mapping[str, str]) -> str:
    """The text of `root` with each `#include "..."` replaced by that file, where it is included first.

    files: texts by path; an include is relative to the file that has it, as for a compiler. Raises KeyError for one
    that is not there.
    """
    seen = {root}

    def expand(path: str) -> list[str]:
        lines: list[str] = []
        for line in files[path].splitlines():
            found = QUOTED.match(line)
            if found is None:
                lines += [] if line == _ONCE else [line]
                continue
            header = include_path(path, found[1])
            if header not in seen:
                seen.add(header)
                lines += ["", f"// ---- {header} {'-' * max(1, 90 - len(header))}", *expand(header)]
        return lines

    text = "\n".join(expand(root))
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"
