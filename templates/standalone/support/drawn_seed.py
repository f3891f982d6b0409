"""The seed of a call with dropout. No trace draws it."""

import torch


def draw_seed(device):
    """A seed as a package's call draws it: an int64 tensor without dimensions."""
    return torch.randint(2**63 - 1, (), dtype=torch.int64, device=device)
