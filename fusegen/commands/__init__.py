"""The commands: what each takes, and what it calls."""

from fusegen.commands import sources, importing, export, modules, wheels, doctor  # isort: skip  # as help lists them
from fusegen.commands.app import app

__all__ = ["app", "doctor", "export", "importing", "modules", "sources", "wheels"]
