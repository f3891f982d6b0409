"""Tests by what they need: nothing but Python, torch, a CUDA compiler, a GPU.

A test says what it needs with a marker; where that is absent it is skipped with the reason. A module that has
`torch` as a global is marked as needing torch by that alone.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# For this process, before it imports torch, and for those that it starts. Tensors of the tests are tiny, and threads
# that wait for each other would take most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# As `fusegen verify --emulate` has it (fusegen/verify/command.py).
if "avx512" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX")

# Nobody reads what a test wrote after a loss of power, and a package is some hundred files to wait for.
os.fsync = lambda handle: None

ROOT = Path(__file__).resolve().parents[1]

# How long examples take is a matter of what else the machine does.
settings.register_profile("fusegen", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fusegen")


# Directories whose files may take a minute each, most of it the compilers'. A worker that begins one of them when the
# others have nothing left keeps them waiting, so that they come first, and files of a few seconds last.
LONG = tuple(f"tests/{name}/" for name in "bench build check emulate export fuzz kernels tune verify wheel".split())


def pytest_configure(config: pytest.Config) -> None:
    # Else xdist begins with the files that have the most tests, which are those of the shortest ones.
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
    for item in items:
        if hasattr(getattr(item, "module", None), "torch"):
            item.add_marker("torch")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for need, absent in (("torch", _no_torch), ("nvcc", _no_nvcc), ("gpu", _no_gpu)):
        if item.get_closest_marker(need) is not None:
            reason = absent()
            if reason is not None:
                pytest.skip(reason)


@pytest.fixture(scope="session")
def emulation_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where emulated packages are compiled to: by their content, and once for all workers of a run. Where the
    environment variable FUSEGEN_TEST_CACHE names a directory, that is kept for later runs."""
    kept = os.environ.get("FUSEGEN_TEST_CACHE")
    if kept:
        path = Path(kept).resolve() / _shared_sources()
    else:
        root = tmp_path_factory.getbasetemp()
        path = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "emulation"
    path.mkdir(parents=True, exist_ok=True)
    return path


def _shared_sources() -> str:
    """A digest of what all packages share, of what compiles them and of what they are compiled against."""
    from fusegen.render.files.support import support_files

    versions = [sys.version, *(importlib.metadata.version(name) for name in ("torch",) if _no_torch() is None)]
    digest = hashlib.sha256(repr((versions, support_files())).encode())
    for path in sorted(path for name in ("emulate", "build") for path in (ROOT / "fusegen" / name).glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def _no_torch() -> str | None:
    return None if importlib.util.find_spec("torch") else "needs torch, which is not installed"


@functools.cache
def _no_nvcc() -> str | None:
    from fusegen.build.errors import BuildError
    from fusegen.build.libraries import find_libraries
    from fusegen.build.toolchain import find_toolchain

    try:
        find_toolchain()
        find_libraries()
    except BuildError as error:
        return "needs a compiler: " + " ".join(str(error).split())
    return None


@functools.cache
def _no_gpu() -> str | None:
    if _no_torch() is not None:
        return _no_torch()
    import torch

    return None if torch.cuda.is_available() else "needs a CUDA GPU, and torch finds none"
