"""The tests of `fusegen bench`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Tensors are tiny here, and threads that wait for each other would take most of the time."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
