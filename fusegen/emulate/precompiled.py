"""Headers that the compiler reads once for all sources that are compiled by the same flags."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

from fusegen.emulate.errors import EmulationBuildError


def precompiled(command: Sequence[str], text: str, cache: Path) -> list[str]:
    """The flags that begin a source with the headers that `text` includes, precompiled in `cache`.

    command: the compiler and the flags of the sources; with others the compiler ignores what is precompiled, and reads
    the headers. The key is the command and the text: what else the headers depend on belongs into a comment of it.
    """
    key = hashlib.sha256(repr((*command, text)).encode()).hexdigest()[:24]
    header = cache / f"precompiled-{key}.h"
    with FileLock(cache / "precompiled.lock"):  # the others would compile the same
        if not header.exists():
            with tempfile.TemporaryDirectory(dir=cache, prefix=".build-") as directory:
                written, compiled = Path(directory) / header.name, Path(directory) / f"{header.name}.gch"
                written.write_text(text, encoding="utf-8")
                done = subprocess.run(
                    [*command, "-x", "c++-header", str(written), "-o", str(compiled)], capture_output=True, text=True
                )
                if done.returncode:
                    raise EmulationBuildError(done.stderr.strip())
                os.replace(compiled, header.with_name(compiled.name))
                os.replace(written, header)
    return ["-include", str(header)]
