"""Generated packages that several threads import at once, and under other names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch  # noqa: F401  # generated packages need it

ROOT = Path(__file__).resolve().parents[2]
# Each in a thread of its own: of one region, and a whole beside its regions.
PACKAGES = """
gemm_add_relu linear_layernorm_gelu geglu matmul_min_subtract gemm_scale_bn linear_dropout_residual
transformer_mlp_prenorm_up transformer_mlp_prenorm transformer_mlp_prenorm_norm transformer_mlp_prenorm_down
""".split()
IMPORTS = """
import importlib, sys, threading
import torch

sys.setswitchinterval(1e-6)
names = sys.argv[1:]
barrier = threading.Barrier(len(names))
found = {}

def run(name):
    barrier.wait()
    found[name] = importlib.import_module(name)

threads = [threading.Thread(target=run, args=(name,)) for name in names]
for each in threads:
    each.start()
for each in threads:
    each.join()
supports = {id(each._support) for each in found.values()}
assert len(found) == len(names) and len(supports) == 1, (sorted(found), supports)
"""
# Its regions have no name beside it then, and are found by their place.
BY_ANOTHER_NAME = """
import importlib.util, sys
import fusegen

name = sys.argv[1]
spec = importlib.util.spec_from_file_location("another", f"generated/{name}/__init__.py")
another = sys.modules["another"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(another)
assert another._region_up is fusegen.load(f"{name}_up")
assert sys.modules[another._region_up.__module__]._support is another._support
"""


def ran(code: str, *arguments: str) -> None:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_packages_imported_at_once() -> None:
    ran(IMPORTS, *(f"generated.{name}" for name in PACKAGES))


def test_regions_of_a_whole_by_another_name() -> None:
    ran(BY_ANOTHER_NAME, "transformer_mlp_prenorm")
