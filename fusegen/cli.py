"""The command line: arguments in, exit code out.

0 fine, 1 drift, a failed build, verification, benchmark or tuning, 2 bad spec or usage, 3 a bug of fusegen. As a shell
has it, 130 after an interrupt and 141 where nobody reads the output any more. FUSEGEN_DEBUG=1 shows the traceback of a
bug.
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
from fusegen.errors import FusegenError, InternalError, SpecError


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and exits."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A locale that lacks a character of a spec is no reason to fail.
        sys.stdout.reconfigure(errors="backslashreplace")
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
    except Exception as error:
        _report_bug(error, f"{type(error).__name__}: {error}", stderr)


def _report_bug(error: Exception, what: str, stderr: Console) -> NoReturn:
    message = f"fusegen has a bug, please report it with the spec: {what}"
    if os.environ.get("FUSEGEN_DEBUG") == "1":
        stderr.print("".join(traceback.format_exception(error)).rstrip(), markup=False, soft_wrap=True)
    else:
        message += "\nFUSEGEN_DEBUG=1 shows the traceback, which belongs into the report."
    stderr.print(message, markup=False, soft_wrap=True)
    sys.exit(3)
