"""What does not take part while modules are compared on a CPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from fusegen.verify.backends import judged_backends

# As an image with a stride in front of a residual block has it.
CONVOLUTION = """
import torch
from torch import nn
from fusegen.verify.backends import judged_backends

layer = nn.Conv2d(5, 6, 1, stride=2, bias=False).to(memory_format=torch.channels_last)
with judged_backends():
    for _ in range(600):
        x = torch.randn(2, 5, 12, 14).to(memory_format=torch.channels_last).requires_grad_()
        layer(x).square().sum().backward()
"""


def test_a_convolution_that_ends_the_process_with_onednn() -> None:
    """On any machine whose processor has AVX2: the variable takes it for one without AVX-512."""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CONVOLUTION], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr)


def test_settings_are_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", True)
    with judged_backends():
        assert not torch.backends.mkldnn.enabled
    assert torch.backends.mkldnn.enabled


def test_the_tests_themselves_leave_it_out() -> None:
    assert not torch.backends.mkldnn.enabled
