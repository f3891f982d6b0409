"""The error of loading a generated package."""

from __future__ import annotations

from fusegen.errors import FusegenError


class LoadError(FusegenError):
    """There is no such generated package, or it is not one of fusegen's."""
