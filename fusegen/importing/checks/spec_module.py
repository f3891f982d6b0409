"""The module that an imported spec becomes, in PyTorch's operators: nothing is compiled."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import nn

from fusegen.plan.modules.module import ModulePlan
from fusegen.render.files.support import used_support
from fusegen.render.module import render_module
from fusegen.runtime.importing import import_package


@contextmanager
def reference_class(planned: ModulePlan) -> Iterator[type[nn.Module]]:
    """The class that the spec is rendered as, with the chain in PyTorch's operators as its forward."""
    with tempfile.TemporaryDirectory(prefix="fusegen_import_") as directory:
        folder = Path(directory).resolve()
        for path, text in _files(planned).items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        try:
            package = import_package(folder, planned.spec.name)
            fused = getattr(package, planned.spec.class_name)
            yield type(fused.__name__, (fused,), {"forward": fused.fusegen_reference})
        finally:
            _forget(folder)


def _forget(folder: Path) -> None:
    """Take the modules below a folder out of sys.modules, with the empty package that they share."""
    for name, module in list(sys.modules.items()):
        # Their own attributes: some modules make an attribute of any name that they are asked for.
        own = getattr(module, "__dict__", {})
        path = own.get("__path__")
        places = [own.get("__file__"), *(path if isinstance(path, list) else ())]
        if any(isinstance(place, str) and Path(place).is_relative_to(folder) for place in places):
            sys.modules.pop(name, None)


def _files(planned: ModulePlan) -> dict[str, str]:
    """The sources of Python."""
    files = {f"{each.spec.name}/__init__.py": render_module(each) for each in planned.modules}
    return {**files, **used_support(files)}
