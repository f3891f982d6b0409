"""Trains a residual network on scikit-learn's digits, with PyTorch's operators and with fused kernels.

    python -m pip install 'fusegen[examples,nvcc]'
    python examples/train_digits.py --plot digits.png

Both runs begin with the same weights and see the same batches, so their curves are the same within rounding. Without a
GPU there are no kernels to run: both then are PyTorch's operators.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import fusegen

sys.path.insert(0, str(Path(__file__).resolve().parent / "models"))

from residual_mlp import Model  # noqa: E402

BATCH, WIDTH, RATE = 256, 512, 0.02


def digits() -> tuple[Tensor, Tensor]:
    """Images [1797, 64] with values in 0 to 1, and the digits that they show."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int) -> tuple[list[float], float]:
    """The mean loss of each epoch, and the seconds that an epoch takes, but for the first."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    order = torch.Generator().manual_seed(0)
    curve, began = [], time.perf_counter()
    for epoch in range(epochs):
        if epoch == 1:
            began = _now(images)
        losses = []
        shuffled = torch.randperm(len(images), generator=order)
        for batch in shuffled[: len(images) // BATCH * BATCH].split(BATCH):  # whole batches: they are normalised
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        curve.append(torch.stack(losses).mean().item())
    return curve, (_now(images) - began) / max(1, epochs - 1)


def _now(images: Tensor) -> float:
    if images.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


def plot(curves: dict[str, list[float]], seconds: dict[str, float], path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.5), width_ratios=(2, 1), layout="constrained")
    for (name, curve), style in zip(curves.items(), ("-", "--"), strict=True):
        left.plot(range(1, len(curve) + 1), curve, style, label=name)
    left.set(xlabel="epoch", ylabel="loss", yscale="log")
    left.legend()
    right.bar(list(seconds), [each * 1000 for each in seconds.values()])
    right.set_ylabel("milliseconds per epoch")
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> dict[str, list[float]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--directory", type=Path, default=Path("fused"), help="gets the specs and the kernels")
    parser.add_argument("--plot", type=Path, help="a file for the curves and the times")
    options = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    images, labels = (each.to(device) for each in digits())
    torch.manual_seed(0)
    model = Model(images.shape[1], WIDTH, 10).to(device)
    models = {"PyTorch's operators": copy.deepcopy(model)}
    # These two lines are all that a training script needs.
    backend = fusegen.Backend(options.directory, rest="inductor" if device == "cuda" else "eager")
    models["fused kernels"] = torch.compile(model, backend=backend)
    curves, seconds = {}, {}
    for name, each in models.items():
        curves[name], seconds[name] = train(each, images, labels, options.epochs)
        print(f"{name} on {device}: loss {curves[name][-1]:.6f}, {seconds[name] * 1000:.1f} ms per epoch")
    print(backend.report)
    if options.plot is not None:
        plot(curves, seconds, options.plot)
    return curves


if __name__ == "__main__":
    main()
