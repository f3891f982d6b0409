"""Emulated kernels that several threads call at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch  # noqa: F401  # emulated packages need it

from tests.emulate.building import write

SPEC = """
fusegen: 1
name: called_by_threads
about: Layer norm, gelu
dims: {batch: 64, features: 96}
arguments: {features: {type: dim}}
inputs: {x: [batch, features]}
dtypes: [float32]
targets: [sm_90]
chain:
  - {op: layer_norm, name: norm, normalized_shape: [features]}
  - {op: gelu}
"""
# In a process of its own, which would end if the engine's state were mixed up.
CALLS = """
import sys, threading
from pathlib import Path
import torch
from fusegen.emulate.package import emulate_package

def step(module, x):
    x = x.clone().requires_grad_()
    y = module(x)
    return y, *torch.autograd.grad(y.square().sum(), [x, *module.parameters()])

made = []
def emulate():
    made.append(emulate_package(Path(sys.argv[1]), cache=Path(sys.argv[2])))

def at_once(calls):
    threads = [threading.Thread(target=each) for each in calls]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

emulate()  # compiled
del sys.modules[made.pop().__name__]
at_once([emulate] * 2)
assert made[0] is made[1]
torch.manual_seed(0)
module = made[0].CalledByThreads(96)
inputs = [torch.randn(5, 96) for _ in range(8)]
expected = [step(module, x) for x in inputs]
found = {}
def work(index):
    found[index] = [step(module, inputs[index]) for _ in range(6)]
at_once([lambda index=index: work(index) for index in range(8)])
for index, each in enumerate(expected):
    for call in found[index]:
        assert all(map(torch.equal, call, each))
assert module.fusegen_kernels(inputs[0]).used
print("right")
"""


def test_threads_get_what_one_thread_gets(tmp_path: Path, emulation_cache: Path) -> None:
    plan = write("called_by_threads", SPEC, tmp_path)
    arguments = [str(tmp_path / plan.spec.name), str(emulation_cache)]
    done = subprocess.run([sys.executable, "-c", CALLS, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout == "right\n", (done.returncode, done.stderr)
