"""Where fusegen's own data files are, in a wheel and in a checkout."""

from __future__ import annotations

from pathlib import Path

from fusegen.errors import InternalError


def templates_directory() -> Path:
    """The directory with the Jinja2 templates and the plain headers.

    The wheel carries it inside the package; in a checkout (or an editable install) it is at the top level.
    The packaged one comes first: beside an installed package, `../templates` would be somebody else's.
    """
    package = Path(__file__).resolve().parent
    for candidate in (package / "templates", package.parent / "templates"):
        if candidate.is_dir():
            return candidate
    raise InternalError(f"no templates directory in {package} or beside it: the installation is incomplete")
