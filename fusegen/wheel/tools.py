"""The packages of `fusegen[wheel]`, looked for before anything is compiled."""

from __future__ import annotations

from importlib.util import find_spec

from fusegen.wheel.errors import WheelError


def require(*modules: str) -> None:
    """Raises WheelError where one of these modules is not installed. Imports none."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise WheelError(f"not installed: {', '.join(missing)} (run: pip install 'fusegen[wheel]')")
