"""The command line in the process of a test: one of its own takes seconds to import what it needs."""

from __future__ import annotations

import contextlib
import io
import subprocess
from pathlib import Path

import pytest

from fusegen.cli import main


def run_here(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """What the command prints and its exit code, in this directory and with these environment variables."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.chdir(cwd)
        for name, value in environment.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
    written = [stream.buffer.getvalue() for stream in (out, err)]
    return subprocess.CompletedProcess(arguments, ended.value.code or 0, *written)
