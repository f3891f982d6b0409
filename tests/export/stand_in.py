"""Exported files without their extension: its functions return zeros, and keep what they were given."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils import cpp_extension

from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.modules.plan import Plan
from fusegen.render.ops.op import Op
from fusegen.render.ops.operators import ops
from fusegen.standalone.named import named_plans


class Recorder:
    """In place of the extension of a file. options: what load_inline() was given. architectures: the environment
    variable that it sees. calls: by
    function, behind that of its region, the arguments."""

    def __init__(self, planned: ModulePlan) -> None:
        self.options: dict[str, Any] = {}
        self.device = "cpu"
        self.architectures: str | None = None
        self.calls: dict[str, tuple] = {}
        self._forward: dict[str, tuple] = {}
        for named in named_plans(planned):
            owner = self
            if named.namespace:
                owner = SimpleNamespace()
                setattr(self, named.namespace, owner)
            owner.split = lambda values: values.clone()
            owner.schemas = {op.function: schema(op) for op in ops(named.plan)}
            for op in ops(named.plan):
                setattr(owner, op.function, self._function(named.plan, op, f"{named.namespace}.{op.function}"))

    def _function(self, plan: Plan, op: Any, name: str) -> Any:
        region = name.rpartition(".")[0]

        def call(*arguments: Any) -> Any:
            assert len(arguments) == len(op.arguments), op.function
            for argument, value in zip(op.arguments, arguments, strict=True):
                kinds: Any = {"size": int, "number": (int, float), "flags": list}.get(argument.kind, torch.Tensor)
                if argument.is_optional:
                    kinds = (torch.Tensor, type(None))
                assert isinstance(value, kinds), f"{op.function}: {argument.name} is {value!r}"
            self.calls[name.lstrip(".")] = arguments
            if op.returns != "kTuple":
                sources = self._forward[region][: len(op.needs)]
                wanted = [each for each, need in zip(sources, arguments[-1], strict=True) if need]
                return [torch.zeros_like(each) for each in wanted]
            rows, channels = arguments[0].shape[0], arguments[1 if plan.chain.contraction else 0].shape[-1]
            channels = arguments[1].shape[0] if plan.chain.contraction else channels
            self._forward[region] = arguments
            return tuple(torch.zeros(rows, channels) for _ in op.results)

        return call


def schema(op: Op) -> str:
    """What an op takes and returns, as its table says it."""
    types = {"tensor": "Tensor", "size": "int", "number": "float", "flags": "bool[]"}
    given = ", ".join(f"{types[each.kind]}{'?' * each.is_optional} {each.name}" for each in op.arguments)
    results = f"({', '.join(f'Tensor {name}' for name in op.results)})"
    return f"({given}) -> {results if op.returns == 'kTuple' else 'Tensor[]'}"


def executed(text: str, extension: Any = None, gpus: Sequence[tuple[int, int]] = ((9, 0),)) -> dict[str, Any]:
    """As graders do it: no file, and the name of the module is that of its builtins. gpus: the compute capabilities of
    those at hand."""

    def load_inline(**options: Any) -> Any:
        if isinstance(extension, Recorder):
            extension.options, extension.architectures = options, os.environ.get("TORCH_CUDA_ARCH_LIST")
        return extension

    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpp_extension, "load_inline", load_inline)
        patch.setattr(torch.cuda, "device_count", lambda: len(gpus))
        patch.setattr(torch.cuda, "get_device_capability", lambda index: gpus[index])
        exec(compile(text, "<string>", "exec"), names)
    return names
