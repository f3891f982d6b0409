"""The commands: what each takes, and what it calls."""

from fusegen.commands import sources, export, modules, wheels  # isort: skip  # in the order in which help lists them
from fusegen.commands.app import app

__all__ = ["app", "export", "modules", "sources", "wheels"]
