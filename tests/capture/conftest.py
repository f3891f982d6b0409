"""A directory of packages whose kernels the emulator runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fusegen.backend import Backend  # noqa: E402
from fusegen.capture import packages  # noqa: E402
from fusegen.emulate.package import emulate_package  # noqa: E402


@pytest.fixture(scope="module")
def fused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for the tests of a file: a spec for more dtypes, as others have it, would serve these."""
    return tmp_path_factory.mktemp("fused")


@pytest.fixture
def backend(fused: Path, emulation_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Backend]]:
    """Makes backends that run emulated kernels, and PyTorch's operators for the rest."""

    def emulated(output: Path, name: str) -> Any:
        return emulate_package(output / name, cache=emulation_cache, checked=False)

    monkeypatch.setattr(packages, "import_package", emulated)
    torch._dynamo.reset()
    yield lambda **options: Backend(fused, **{"rest": "eager"} | options)
    torch._dynamo.reset()
