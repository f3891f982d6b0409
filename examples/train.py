"""Builds one seed chain and trains the generated module for a few steps, on the GPU if there is one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

import fusegen

ROOT = Path(__file__).resolve().parents[1]
SPEC = ROOT / "specs" / "matmul_bn_bias_div_swish.yaml"
BATCH, IN_FEATURES, OUT_FEATURES, STEPS = 256, 512, 256, 10


def main() -> None:
    subprocess.run([sys.executable, "-m", "fusegen", "build", str(SPEC)], cwd=ROOT, check=True)
    if torch.cuda.is_available():
        device = torch.device("cuda")
        print(f"Training on {torch.cuda.get_device_name(device)} with the fused kernels.")
    else:
        device = torch.device("cpu")
        print("No CUDA GPU was found: training on the CPU, where the module runs PyTorch's own operators.")

    torch.manual_seed(0)
    module_class = fusegen.load(SPEC.stem, ROOT / "generated")
    module = module_class(IN_FEATURES, OUT_FEATURES, divide_value=2.0).to(device)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    # The target is another instance of the same chain, so that the loss has somewhere to go.
    teacher = module_class(IN_FEATURES, OUT_FEATURES, divide_value=2.0).to(device)
    x = torch.randn(BATCH, IN_FEATURES, device=device)
    with torch.no_grad():
        target = teacher(x)
    for step in range(1, STEPS + 1):
        optimiser.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(module(x), target)
        loss.backward()
        optimiser.step()
        print(f"step {step:2d}  loss {loss.item():.5f}")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        # `fusegen build` has already said what is wrong.
        sys.exit(error.returncode)
