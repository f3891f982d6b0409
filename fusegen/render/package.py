"""A plan as the files of its generated package."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from fusegen.paths import SUPPORT, templates_directory
from fusegen.plan.composition import Planned, modules
from fusegen.plan.plan import Plan
from fusegen.progress import tell
from fusegen.render.binding import render_bindings
from fusegen.render.cuda import render_kernels
from fusegen.render.git_files import git_files
from fusegen.render.launchers_header import render_launchers_header
from fusegen.render.module import render_module
from fusegen.render.regions import module_summary

_SUFFIXES = (".cuh", ".cu", ".h", ".cpp", ".py")
_COMPILED = (".cuh", ".cu", ".h")
_RANKS = {f"{SUPPORT}/{name}" for name in ("ranks.cuh", "ranks.h", "torch_ranks.h")}

_IMAGE_COPY = {
    f"{SUPPORT}/{name}"
    for name in (
        "image_copy.h",
        "image_copy_shapes.cuh",
        "kernels/image_copy.cuh",
        "kernels/image_padding.cuh",
        "torch_image_copy.h",
    )
}

_MEAN_LOSS = {f"{SUPPORT}/{name}" for name in ("mean_loss.h", "kernels/mean_loss.cuh", "torch_mean_loss.h")}

_MODULE = "python_module.cpp"
_CONTRACTION = f"{SUPPORT}/contraction/"

Files = Mapping[str, str]
"""Paths below the output directory, with `/`, and the text of each file; lines end in LF."""


def render_package(planned: Planned) -> Files:
    """The files of a module's package and of those of its regions. A pure function of the plans and the templates."""
    files, sources = dict[str, str](), dict[str, str]()
    for plan in planned.plans:
        name, kernels, launchers = plan.spec.name, render_kernels(plan), render_launchers_header(plan)
        own = sources_digest([kernels, launchers, render_bindings(plan, ""), *compiled_support(plan).values()])
        files |= {
            f"{name}/bindings.cpp": render_bindings(plan, own),
            f"{name}/kernels.cu": kernels,
            f"{name}/launchers.h": launchers,
        }
        sources[name] = own
    for module in modules(planned):
        name = module.spec.name
        files |= {
            f"{name}/__init__.py": render_module(module, sources),
            f"{name}/plan.json": json.dumps(module_summary(module), indent=2, ensure_ascii=True) + "\n",
            f"{name}/py.typed": "",
        }
    return files


def sources_digest(texts: Iterable[str]) -> str:
    """Of everything that a package's library is compiled from; it stands in the sources and in the library.

    Lines that are comments do not count: a library need not be built again for them.
    """
    lines = (line for text in texts for line in [*text.splitlines(), "\0"] if not line.lstrip().startswith("//"))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def support_files() -> Files:
    """The plain sources that all packages share; what editors and file managers leave beside them is not."""
    support = templates_directory() / SUPPORT
    sources = [path for path in support.rglob("*") if path.suffix in _SUFFIXES]
    return {f"{SUPPORT}/{p.relative_to(support).as_posix()}": p.read_text(encoding="utf-8") for p in sorted(sources)}


def compiled_support(plan: Plan) -> Files:
    """Those of support_files() that go into a package's library."""
    return {
        path: text
        for path, text in support_files().items()
        if (path.endswith(_COMPILED) or _MODULE in path)
        and (plan.has_precisions or not path.startswith(_CONTRACTION))
        and (plan.over_ranks or path not in _RANKS)
        and (plan.chain.spatial or path not in _IMAGE_COPY)
        and (plan.chain.takes_mean or path not in _MEAN_LOSS)
    }


def render_all(plans: Iterable[Planned]) -> Files:
    """Every file that a set of plans becomes, shared sources and git's included, in the order of their paths."""
    files: dict[str, str] = {**git_files(), **support_files()}
    plans = list(plans)
    for index, plan in enumerate(plans):
        tell(f"rendering {plan.spec.name}", index, len(plans))
        files.update(render_package(plan))
    return dict(sorted(files.items()))
