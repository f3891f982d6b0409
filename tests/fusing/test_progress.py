"""Importing and fusing say what they are at."""

from __future__ import annotations

import torch
from torch import nn

import fusegen
from fusegen.progress import listening


class Tail(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = nn.Linear(12, 8), nn.LayerNorm(8)

    def forward(self, x):
        return torch.relu(self.norm(self.fc(x)))


def test_an_import_tells_its_stages() -> None:
    told: list[tuple[str, int, int]] = []
    with listening(lambda *each: told.append(each)):
        fusegen.from_module(Tail(), [torch.randn(5, 12)])
    texts = [what for what, _, _ in told]
    assert texts[:2] == ["tracing", "reading and planning"]
    assert {"comparing: modes and dtypes", "comparing: the example"} <= set(texts)
    assert all(0 <= done < count for _, done, count in told)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_fusing_tells_which_module() -> None:
    told: list[tuple[str, int, int]] = []
    model = nn.ModuleDict({"first": Tail(), "second": nn.Sequential(nn.Linear(8, 4), nn.LayerNorm(4), nn.GELU())})
    model.forward = lambda x: model["second"](model["first"](x))  # type: ignore[method-assign]
    with listening(lambda *each: told.append(each)):
        fusegen.fuse(model, torch.randn(5, 12), dry_run=True)
    texts = [what for what, _, _ in told]
    count = len(list(model.modules()))
    assert ("first: tracing", 1, count) in told and any(text.startswith("second[0:3]: ") for text in texts)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
