"""An exported file on the GPU: built by torch, executed in a process without fusegen, beside its original."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import fusegen  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc, pytest.mark.gpu]

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import copy, sys, torch
from tests.chains.originals import CHAINS
assert not any(name.startswith("fusegen") for name in sys.modules)
code = compile(open(sys.argv[1]).read(), "<string>", "exec")
for names in ({}, {}):  # graders execute a file again and again
    exec(code, names)
made = []
for kind in (CHAINS[sys.argv[2]].module, names["ModelNew"]):
    torch.manual_seed(0)
    made.append(kind(96, 160, 1e-5, 0.1, (1,), 1.5).cuda())
original, exported = made
for dtype, limit in ((torch.float32, 1e-4), (torch.float16, 1e-2)):
    for training in (True, False):
        found, x = [], torch.randn(64, 96, device="cuda", dtype=dtype)
        grad = torch.randn(64, 160, device="cuda", dtype=dtype) / 64
        for module in (original, exported):
            module.to(dtype).train(training).zero_grad()
            own = x.clone().requires_grad_()
            y = module(own)
            y.backward(grad)
            found.append([y, own.grad, *(p.grad for p in module.parameters()), *module.buffers()])
        torch.testing.assert_close(found[1], found[0], atol=limit, rtol=limit)
        with torch.no_grad():
            assert copy.deepcopy(exported)(x).grad_fn is None  # which moves running statistics in training
graph, x = torch.cuda.CUDAGraph(), torch.randn(64, 96, device="cuda", dtype=torch.float16)
with torch.no_grad():
    before = exported(x)
    with torch.cuda.graph(graph):
        y = exported(x)
    graph.replay()
assert torch.equal(y, before)
print("alike")
"""
REGIONS = """
import sys, torch
from torch import nn
assert not any(name.startswith("fusegen") for name in sys.modules)


class Original(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.norm = nn.RMSNorm(features, eps=1e-6)
        self.up, self.down = nn.Linear(features, hidden), nn.Linear(hidden, features)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(self.norm(x)))) + x


names = {}
exec(compile(open(sys.argv[1]).read(), "<string>", "exec"), names)
made = []
for kind in (Original, names["ModelNew"]):
    torch.manual_seed(0)
    made.append(kind(96, 160).cuda())
for dtype, limit in ((torch.float32, 1e-4), (torch.float16, 1e-2)):
    x, grad = (torch.randn(3, 33, 96, device="cuda", dtype=dtype) for _ in range(2))
    found = []
    for module in made:
        module.to(dtype).zero_grad()
        own = x.clone().requires_grad_()
        y = module(own)
        y.backward(grad / 64)
        found.append([y, own.grad, *(p.grad for p in module.parameters())])
    torch.testing.assert_close(found[1], found[0], atol=limit, rtol=limit)
print("alike")
"""


@pytest.mark.parametrize(
    ("name", "program"), [("matmul_bn_bias_div_swish", PROGRAM), ("transformer_mlp_prenorm", REGIONS)]
)
def test_a_file_beside_its_original(name: str, program: str, tmp_path: Path) -> None:
    file = tmp_path / "fused.py"
    file.write_text(fusegen.export(ROOT / "specs" / f"{name}.yaml", dtypes=["float32", "float16"]), encoding="ascii")
    # All that this process imports from: torch need not be installed where the interpreter looks by itself.
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "TORCH_EXTENSIONS_DIR": str(tmp_path)}
    command = [sys.executable, "-c", program, str(file), name]
    done = subprocess.run(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=False)
    # pytest shows what the process wrote to stderr, whole.
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["alike"])
