"""Loading generated packages: by name from a directory, without touching sys.path."""

from __future__ import annotations

from fusegen.runtime.errors import LoadError
from fusegen.runtime.load import load

__all__ = ["LoadError", "load"]
