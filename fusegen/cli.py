"""The command line: arguments in, exit code out.

0 fine, 1 drift, a failed build, verification, benchmark or tuning, or what the system refuses, 2 bad spec or usage, 3 a
bug of fusegen. As a shell has it, 130 after an interrupt and 141 where nobody reads the output any more.
FUSEGEN_DEBUG=1 shows the traceback of a bug, and of what the system refuses.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback
from typing import NoReturn

from rich.console import Console

from fusegen.commands import app
from fusegen.errors import FusegenError, InternalError, SpecError, printable


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and exits."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A locale that lacks a character of a spec is no reason to fail.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            _run(arguments)
        finally:
            _flush()
    except OSError:  # there is nowhere to say it
        sys.exit(1)


def _run(arguments: list[str] | None) -> None:
    stderr = Console(stderr=True, highlight=False)
    try:
        app(args=arguments, prog_name="fusegen")  # and not `python -m fusegen`, for which no shell completes
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except SpecError as error:
        stderr.print(str(error), markup=False, soft_wrap=True)
        sys.exit(2)
    except FusegenError as error:
        if isinstance(error, InternalError):
            _report_bug(error, str(error), stderr)
        stderr.print(str(error), markup=False, soft_wrap=True)
        sys.exit(1)
    except OSError as error:
        # A directory that may not be searched, a name that is too long, an output on a full disk. FileNotFoundError and
        # the like are not excepted: what is there when a command begins may be gone later.
        _show_traceback(error, stderr)
        place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        stderr.print(printable(f"error: {place}{error.strerror or error}"), markup=False, soft_wrap=True)
        sys.exit(1)
    except Exception as error:
        _report_bug(error, f"{type(error).__name__}: {error}", stderr)


def _report_bug(error: Exception, what: str, stderr: Console) -> NoReturn:
    message = f"fusegen has a bug, please report it with the spec: {what}"
    if not _show_traceback(error, stderr):
        message += "\nFUSEGEN_DEBUG=1 shows the traceback, which belongs into the report."
    stderr.print(message, markup=False, soft_wrap=True)
    sys.exit(3)


def _show_traceback(error: Exception, stderr: Console) -> bool:
    """Whether the environment asks for it."""
    wanted = os.environ.get("FUSEGEN_DEBUG") == "1"
    if wanted:
        stderr.print("".join(traceback.format_exception(error)).rstrip(), markup=False, soft_wrap=True)
    return wanted


def _flush() -> None:
    """What cannot be written now would be an error again when Python ends."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:  # it was closed before Python began
            continue
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
