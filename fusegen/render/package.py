"""A plan as the files of its generated package."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from fusegen.plan.modules.module import ModulePlan
from fusegen.progress import tell
from fusegen.render.cuda import render_kernels
from fusegen.render.files.git_files import git_files
from fusegen.render.files.support import used_support
from fusegen.render.module import render_module
from fusegen.render.ops.binding import render_bindings
from fusegen.render.programs.launchers_header import render_launchers_header
from fusegen.render.python.regions import module_summary

Files = Mapping[str, str]
"""Paths below the output directory, with `/`, and the text of each file; lines end in LF."""


def render_package(planned: ModulePlan) -> Files:
    """The files of a module's package and of those of its regions. A pure function of the plans and the templates."""
    files = dict[str, str]()
    for plan in planned.plans:
        name = plan.spec.name
        files |= {
            f"{name}/kernels.cu": render_kernels(plan),
            f"{name}/launchers.h": render_launchers_header(plan),
            f"{name}/bindings.cpp": render_bindings(plan),
        }
    for module in planned.modules:
        name = module.spec.name
        files |= {
            f"{name}/__init__.py": render_module(module),
            f"{name}/plan.json": json.dumps(module_summary(module), indent=2, ensure_ascii=True) + "\n",
            f"{name}/py.typed": "",
        }
    return files


def render_all(plans: Iterable[ModulePlan]) -> Files:
    """Every file that a set of plans becomes, in the order of their paths, with what packages share, and git's."""
    files: dict[str, str] = {}
    plans = list(plans)
    for index, plan in enumerate(plans):
        tell(f"rendering {plan.spec.name}", index, len(plans))
        files.update(render_package(plan))
    return dict(sorted({**files, **used_support(files), **git_files()}.items()))
