"""The error of a wheel: its libraries, or the tools that pack it."""

from __future__ import annotations

from fusegen.errors import FusegenError


class WheelError(FusegenError):
    """No wheel was written: a library needs more than the wheel would say, or a tool is missing or failed."""

    code = "FG509"
