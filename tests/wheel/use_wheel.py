"""Uses an installed wheel as somebody without fusegen: `python use_wheel.py cpu|cuda`, run in a process of its own.

The wheel is of the specs beside this file. Its modules are compared with what they replace, over steps of training.
"""

from __future__ import annotations

import sys

sys.modules["fusegen"] = None  # type: ignore[assignment]  # an import of it is an error

import torch  # noqa: E402
from torch import nn  # noqa: E402


class BiasRelu(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + self.bias).relu()


class LinearGelu(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(self.linear(x))


class MLP(nn.Module):
    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(features, hidden), nn.Linear(hidden, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x).relu())


def made(module: type[nn.Module], sizes: tuple[int, ...], device: str) -> nn.Module:
    torch.manual_seed(0)
    return module(*sizes).to(device)


def step(module: nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """One of gradient descent; returns the output, the gradients and the state after it."""
    module.zero_grad()
    x = x.clone().requires_grad_()
    y = module(x)
    (y.square().mean() * 100).backward()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter -= 0.1 * parameter.grad
    gradients = {f"{name} grad": each.grad.clone() for name, each in module.named_parameters()}
    return {"y": y.detach(), "x grad": x.grad, **gradients, **{k: v.clone() for k, v in module.state_dict().items()}}


def compare(replaced: type[nn.Module], fused: type[nn.Module], sizes: tuple[int, ...], device: str) -> None:
    original, module = made(replaced, sizes, device), made(fused, sizes, device)
    assert list(module.state_dict()) == list(original.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), original.parameters(), strict=True))
    x = torch.randn(64, sizes[0], device=device)
    assert bool(module.fusegen_kernels(x)) == (device == "cuda"), module.fusegen_kernels(x)
    for _ in range(3):
        expected, found = step(original, x), step(module, x)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            if device == "cpu":  # the same operators
                assert torch.equal(found[name], value), name
            else:
                torch.testing.assert_close(found[name], value, msg=lambda text, name=name: f"{name}: {text}")
    original.load_state_dict(module.state_dict())


def main(device: str) -> None:
    import my_kernels

    assert sorted(my_kernels.__all__) == ["BiasRelu", "LinearGelu", "MLP"]
    compare(BiasRelu, my_kernels.BiasRelu, (32,), device)
    compare(LinearGelu, my_kernels.LinearGelu, (48, 32), device)
    compare(MLP, my_kernels.MLP, (32, 48), device)
    # All libraries are there and loaded, on whatever device.
    assert len(torch.ops.loaded_libraries) == 3
    print(f"trained on {device}")


if __name__ == "__main__":
    main(sys.argv[1])
