"""A plan in Python: what `fusegen plan` says, as text, and as a page or a picture of a notebook."""

from __future__ import annotations

import html
from pathlib import Path

from fusegen.explain.module import reported, written
from fusegen.explain.page import page
from fusegen.plan.load import planned_files
from fusegen.plan.modules.module import ModulePlan


class Picture(str):
    """An SVG as text, which a notebook draws."""

    def _repr_svg_(self) -> str:
        return str(self)


class PlanView:
    """What a spec becomes and what is expected of it beside eager PyTorch: text by print(), the page of `fusegen plan
    --format html` in a notebook. target: the one of the spec's targets for whose GPU times are; None: the fastest."""

    def __init__(self, planned: ModulePlan, target: str | None = None) -> None:
        self._planned, self._target = planned, target

    def __str__(self) -> str:
        return written(self._planned, None, self._target, full=False).rstrip("\n")

    __repr__ = __str__

    def picture(self) -> Picture:
        """What eager PyTorch runs, and the kernels that replace it: `fusegen plan --format svg`."""
        return Picture(written(self._planned, None, self._target, "svg"))

    def _repr_html_(self) -> str:
        """In a frame: the page's styles are for a whole page."""
        text = html.escape(page(reported(self._planned, None, self._target)))
        return f'<iframe srcdoc="{text}" sandbox style="width: 100%; height: 40rem; border: 0"></iframe>'


def plan_of(spec: Path | str, *, target: str | None = None) -> PlanView:
    """What a spec file becomes, without compiling and without a GPU. target: as PlanView has it. Raises SpecError."""
    (planned,) = planned_files([spec])
    view = PlanView(planned, target)
    str(view)  # a target that the spec lacks is refused here, and not where a notebook shows the plan
    return view
