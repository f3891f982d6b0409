"""Convolutions on a CPU, which some code of oneDNN in torch 2.13 ends the process with."""

from __future__ import annotations

import os
import subprocess
import sys

import torch  # noqa: F401  # the processes need it

# As an image with a stride in front of a residual block has it.
CONVOLUTION = """
import torch
from torch import nn

layer = nn.Conv2d(5, 6, 1, stride=2, bias=False).to(memory_format=torch.channels_last)
for _ in range(600):
    x = torch.randn(2, 5, 12, 14).to(memory_format=torch.channels_last).requires_grad_()
    layer(x).square().sum().backward()
"""
VERIFY = """
from pathlib import Path
from fusegen.verify.command import verify_specs

verify_specs([], Path("generated"), emulate=True, seed=0, as_json=True)
"""
NAME = "ONEDNN_MAX_CPU_ISA"


def ran(code: str, environment: dict[str, str]) -> int:
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.DEVNULL, check=False
    ).returncode


def test_in_processes_of_tests() -> None:
    assert ran(CONVOLUTION, dict(os.environ)) == 0


def test_behind_verify() -> None:
    """Where the processor has AVX2 and no AVX-512, they end the process without what verify sets."""
    environment = {name: value for name, value in os.environ.items() if name != NAME}
    assert ran(VERIFY + CONVOLUTION, environment) == 0
