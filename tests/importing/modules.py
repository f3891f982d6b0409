"""Modules of the tests: written by a small generator from the lines of their constructor and of their forward."""

from __future__ import annotations

import linecache
import textwrap
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from fusegen.importing.module import from_module
from fusegen.plan.load import plan_document
from fusegen.plan.modules.plan import Plan
from fusegen.spec.yaml import parse_yaml

ROWS, WIDTH, CHANNELS = 6, 16, 24

_CLASS = """\
class Model(nn.Module):
    def __init__(self, n=16, m=24{more}):
        super().__init__()
{made}

    def forward(self, {inputs}):
{lines}
"""
LINEAR = "self.fc = nn.Linear(n, m)"


@dataclass(frozen=True)
class Source:
    """made: lines of the constructor, behind that of the linear layer. lines: of forward, which begins with y. more:
    further arguments of the constructor."""

    made: str
    lines: str
    inputs: str = "x"
    more: str = ""

    @property
    def text(self) -> str:
        return _CLASS.format(
            made=textwrap.indent("\n".join([LINEAR, *filter(None, [textwrap.dedent(self.made).strip()])]), " " * 8),
            lines=textwrap.indent("\n".join(["y = self.fc(x)", textwrap.dedent(self.lines).strip()]), " " * 8),
            inputs=self.inputs,
            more=f", {self.more}" if self.more else "",
        )

    def module(self, name: str = "model.py") -> nn.Module:
        """An instance, of a class whose source PyTorch and messages find as that of a file."""
        text = self.text
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        names = {"torch": torch, "nn": nn, "F": F, "__name__": "model"}
        exec(compile(text, name, "exec"), names)
        return names["Model"]()  # type: ignore[operator]

    def line(self, words: str) -> int:
        """The number of the line that has these words."""
        (found,) = (number for number, line in enumerate(self.text.splitlines(), 1) if words in line)
        return found


def imported(source: Source, *shapes: tuple[int, ...]) -> str:
    """The text of its spec, with the constructor's arguments known."""
    torch.manual_seed(0)
    module = source.module()
    inputs = [torch.randn(shape) for shape in (shapes or ((ROWS, WIDTH),))]
    return from_module(module, inputs, arguments=[WIDTH, CHANNELS])


def plan(text: str) -> Plan:
    return plan_document(parse_yaml(text, "spec.yaml"))


def chain(text: str) -> list[dict]:
    """The steps behind the linear layer, as they are written."""
    return [dict(step) for step in parse_yaml(text, "spec.yaml").data["chain"][1:]]
