"""benchmarks/host_time.py by its self-test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.test_page import ROOT

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]


def test_self_test(emulation_cache: Path) -> None:
    pytest.importorskip("torch")
    options = ["--self-test", "--chains", "matmul_bn_bias_div_swish", "--cache", str(emulation_cache)]
    command = [sys.executable, "benchmarks/host_time.py", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
