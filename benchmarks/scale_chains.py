"""The chains of scale.py: a spec in one dtype, the sizes that it allows, and its programs at one of them."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from scale_sizes import Size, sizes

from fusegen.plan.load import plan_file
from fusegen.plan.sizes.chain_sizes import Sizes
from fusegen.plan.sizes.chain_sizes import sizes as allowed_sizes
from fusegen.tune.chain import Chain as TailChain
from fusegen.tune.launchers import Launchers, compile_launchers

CACHE = Path(tempfile.gettempdir()) / "fusegen-scale"  # of compiled launchers
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


class Chain(TailChain):
    """A spec in one dtype, with the sizes of scale.py."""

    @property
    def dtype(self) -> str:
        return next(name for name, dtype in DTYPES.items() if dtype == self.mode.roles["activation"])

    def sizes(self, most_bytes: int, quick: bool) -> list[Sizes]:
        """Those that the spec allows, each once."""
        width = getattr(torch, self.mode.roles["activation"]).itemsize
        return self.allowed(sizes(width, bool(self.plan.chain.group_counts), most_bytes, quick))

    def allowed(self, wanted: Sequence[Size]) -> list[Sizes]:
        """As above, of given sizes."""
        found = [allowed_sizes(self.plan, size.rows, 1, size.channels, size.groups) for size in wanted]
        return list({tuple(sorted(each.symbols.items())): each for each in found}.values())


def launchers_for_device(names: Sequence[str], cache: Path) -> Mapping[str, Launchers]:
    """Those of the named packages, compiled for the GPU at hand."""
    major, minor = torch.cuda.get_device_capability()
    return compile_launchers(names, Path("generated"), cache, f"sm_{major}{minor}")


def chains(names: Sequence[str], dtypes: Sequence[str], launchers: Mapping[str, Launchers], device: str) -> list[Chain]:
    """Each spec in each dtype."""
    found = []
    for name in names:
        plan = plan_file(Path("specs") / f"{name}.yaml")
        package = importlib.import_module(f"generated.{name}")
        for dtype in dtypes:
            mode = next(mode for mode in plan.modes if mode.plain and mode.roles["activation"] == DTYPES[dtype])
            found.append(Chain(plan, mode, package, launchers[name], device))
    return found
