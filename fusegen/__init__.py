"""fusegen: YAML descriptions of operator chains rendered to CUDA C++ that trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fusegen.version import __version__

__all__ = ["Backend", "__version__", "compile", "export", "from_module", "load", "plan_of", "survey"]

if TYPE_CHECKING:
    from fusegen.backend import Backend, compile
    from fusegen.capture.survey import survey_of as survey
    from fusegen.explain.plan_view import plan_of
    from fusegen.importing.module import from_module
    from fusegen.runtime import load
    from fusegen.standalone.export import export


def __getattr__(name: str) -> Any:
    # Late, so that rendering and `fusegen plan` never pay for importing torch.
    if name == "load":
        from fusegen.runtime import load

        return load
    if name == "from_module":
        from fusegen.importing.module import from_module

        return from_module
    if name == "export":
        from fusegen.standalone.export import export

        return export
    if name == "plan_of":
        from fusegen.explain.plan_view import plan_of

        return plan_of
    if name == "survey":
        from fusegen.capture.survey import survey_of

        return survey_of
    if name in ("Backend", "compile"):
        from fusegen import backend

        return getattr(backend, name)
    raise AttributeError(f"module 'fusegen' has no attribute {name!r}")
