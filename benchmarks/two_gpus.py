"""The second GPU and DistributedDataParallel, on a machine with two GPUs.

    PYTHONPATH=. python benchmarks/two_gpus.py

Exits 1 if a module on cuda:1 does not do what it does on cuda:0, or if training under DDP differs from the original's.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from subjects import subjects
from torch.nn.parallel import DistributedDataParallel

CHAINS = ("matmul_bn_bias_div_swish", "gemm_bias_hardtanh_mish_groupnorm")
SIZE = (128, 256, 512, 32)
STEPS = 3


def second_device() -> bool:
    """Forward and backward on cuda:1 while cuda:0 is current: bitwise what cuda:0 gives."""
    same = True
    for name, subject in subjects(CHAINS, stand_in=False).items():
        fused, _, x = subject.pair(SIZE, torch.float32, "cuda:0", seed=3)
        results = []
        for device in ("cuda:0", "cuda:1"):
            module = fused.to(device)
            module.zero_grad()
            given = x.detach().to(device).requires_grad_()
            y = module.eval()(given)
            y.backward(torch.ones_like(y))
            tensors = [y.detach(), given.grad, *(p.grad for p in module.parameters())]
            same = same and all(tensor.device == torch.device(device) for tensor in tensors)
            results.append([tensor.cpu() for tensor in tensors])
        equal = all(torch.equal(a, b) for a, b in zip(*results, strict=True))
        print(f"{name}: cuda:1 {'equals' if equal else 'DIFFERS FROM'} cuda:0, bit for bit")
        same = same and equal and torch.cuda.current_device() == 0
    return same


def worker(rank: int, failures) -> None:
    """One rank: trains the original and the generated module side by side on its share of the batch."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29571")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2)
    for name, subject in subjects(CHAINS, stand_in=False).items():
        fused, original, _ = subject.pair(SIZE, torch.float32, f"cuda:{rank}", seed=4)
        modules = [DistributedDataParallel(module, device_ids=[rank]) for module in (fused, original)]
        optimisers = [torch.optim.SGD(module.parameters(), lr=1e-2, momentum=0.9) for module in modules]
        torch.manual_seed(10 + rank)
        for _ in range(STEPS):
            x = torch.randn(SIZE[0], SIZE[1], device=f"cuda:{rank}")
            grad = torch.randn(SIZE[0], SIZE[2], device=f"cuda:{rank}") / SIZE[0]
            for module, optimiser in zip(modules, optimisers, strict=True):
                optimiser.zero_grad()
                module(x).backward(grad)
                optimiser.step()
        ours, theirs = (module.state_dict() for module in modules)
        worst = max(float((ours[key].float() - theirs[key].float()).abs().max()) for key in ours)
        print(f"{name} rank {rank}: after {STEPS} steps of DDP the state differs from the original's by {worst:.2e}")
        if not worst < 1e-5:
            failures.value += 1
    dist.destroy_process_group()


def main() -> int:
    """Both checks."""
    if torch.cuda.device_count() < 2:
        print("needs two GPUs", file=sys.stderr)
        return 2
    torch.backends.cuda.matmul.allow_tf32 = False
    same = second_device()
    failures = torch.multiprocessing.get_context("spawn").Value("i", 0)
    torch.multiprocessing.spawn(worker, args=(failures,), nprocs=2)
    return 0 if same and failures.value == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
