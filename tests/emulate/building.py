"""From a spec's text to its plan and its module, without touching `generated/`."""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from fusegen.emulate import EmulatedLibrary, compile_kernels
from fusegen.ir.axes import Dim
from fusegen.paths import templates_directory
from fusegen.plan.launches.shapes import Shapes
from fusegen.plan.load import plan_document
from fusegen.plan.modules.module import module_of
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Mode
from fusegen.render.output import write_files
from fusegen.render.package import Files, render_all
from fusegen.spec.yaml import parse_yaml


def write(name: str, text: str, root: Path, multiprocessors: int | None = None) -> Plan:
    """The spec and its package, below `root`; for a device with so many multiprocessors, if it is to be another one."""
    (root / f"{name}.yaml").write_text(text, encoding="utf-8")
    plan, files = _rendered(f"{name}.yaml", text)
    write_files(files, root)
    if multiprocessors:
        on_another_device(root, multiprocessors)
    return plan


@functools.cache
def _rendered(file: str, text: str) -> tuple[Plan, Files]:
    plan = plan_document(parse_yaml(text, file, lenient=True))
    return plan, render_all([module_of(plan)])


def on_another_device(root: Path, multiprocessors: int, shared_bytes: int | None = None) -> None:
    """Makes the device that is emulated, for the packages below `root`, one with so many multiprocessors and so many
    bytes of shared memory for a block."""
    table = root / "support" / "devices.cuh"
    changed, count = re.subn(
        r"\{90, \d+, ([^,]+),",
        lambda line: f"{{90, {multiprocessors}, {shared_bytes or line[1]},",
        table.read_text(encoding="utf-8"),
    )
    assert count == 1
    table.write_text(changed, encoding="utf-8")


def kernels_of(package: Path, mode: Mode, cache: Path, **looked_at: bool) -> EmulatedLibrary:
    """The launchers of a generated package in one dtype configuration; cache, looked_at: see compile_kernels()."""
    defines = ["FUSEGEN_VERIFICATION"] if mode.roles["activation"] == "float64" else []
    return compile_kernels(package / "kernels.cu", cache=cache, defines=defines, modes=[mode.index], **looked_at)


def module_class(plan: Plan, root: Path) -> type[nn.Module]:
    spec = importlib.util.spec_from_file_location(plan.spec.name, root / plan.spec.name / "__init__.py")
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    return getattr(package, plan.spec.class_name)


def arguments(plan: Plan, rows: int, channels: int, groups: int, source: int | None = None) -> list[Any]:
    """The constructor's arguments for these sizes. source: the linear layer's input width, if it is another one."""
    sizes = {name: channels for name in plan.spec.dims} | {"in_features": source or channels, "batch": rows}
    found: list[Any] = []
    for name, argument in plan.spec.arguments.items():
        if argument.type == "shape":
            found.append(tuple(sizes.get(dim, dim) for dim in argument.is_))
        else:
            found.append(
                {"dim": sizes.get(name), "int": groups, "float": getattr(argument, "default", None)}[argument.type]
            )
    return found


def forced_shapes(schedule: str) -> Shapes | None:
    """Launch shapes by name: a schedule, "clusters of 4" for column tiles in as many blocks, "wide clusters of 4"
    with four vectors of a row in each, "two_pass in eight blocks" for each multiprocessor, "two_pass, segments in 4
    blocks" each, or "twice a share" for rows whose threads have twice as much of a segment."""
    if schedule == "automatic":
        return None
    if schedule.startswith("clusters of "):
        return Shapes("persistent", column_cluster=int(schedule.removeprefix("clusters of ")))
    if schedule.startswith("wide clusters of "):
        return Shapes(
            "persistent", column_threads_per_row=4, column_cluster=int(schedule.removeprefix("wide clusters of "))
        )
    if schedule == "two_pass in eight blocks":
        return Shapes("two_pass", pointwise_blocks=8)
    if schedule.startswith("two_pass, segments in "):
        return Shapes("two_pass", row_reduction_blocks=int(schedule.split()[-2]))
    if schedule == "twice a share":
        return Shapes("persistent", row_share=2)
    return Shapes(schedule.replace(" ", "_"))


def compiled_shapes(
    source: str,
    root: Path,
    cache: Path,
    *,
    defines: Sequence[str] = (),
    modes: Iterable[int] | None = None,
    checked: bool = False,
) -> EmulatedLibrary:
    """The text of a kernels.cu that calls functions of the support headers, below `root`. cache, defines, modes,
    checked: as compile_kernels() has them."""
    shutil.copytree(templates_directory() / "support", root / "support")
    (root / "shapes").mkdir()
    (root / "shapes" / "kernels.cu").write_text(source, encoding="utf-8")
    source_file = root / "shapes" / "kernels.cu"
    return compile_kernels(source_file, cache=cache, defines=defines, modes=modes, checked=checked)


def size(dim: Dim, dynamic: int) -> int:
    return dim if isinstance(dim, int) else dynamic
