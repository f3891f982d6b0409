from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory, emulation_cache: Path):
    pytest.importorskip("torch")
    from tests.export.emulated import Emulated

    return Emulated(tmp_path_factory.mktemp("exported"), emulation_cache)
