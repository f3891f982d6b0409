"""The chains of a model: whole modules, the largest first, and runs of children of an nn.Sequential."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from fusegen.aten.table import CONVOLUTIONS, MODULES
from fusegen.fusing.calls import Calls
from fusegen.fusing.chains import Chain, Chains, Refused, misfit
from fusegen.fusing.flat import Run
from fusegen.fusing.report import Left
from fusegen.fusing.snapshot import interference
from fusegen.fusing.swap import is_replaced
from fusegen.importing.module import snake_case
from fusegen.progress import within

# Layers with tensors that a chain has.
_CONVOLUTIONS = tuple(getattr(nn, kind) for kind, _ in CONVOLUTIONS.values())
_LAYERS = (*(getattr(nn, kind) for kind, _ in MODULES.values()), nn.BatchNorm2d, nn.BatchNorm3d, *_CONVOLUTIONS)
_ADVICE = "its parts are looked at: make an MLP, or the like, a module of its own"
# A module of more layers is looked at by its parts, which others may have too.
_MOST_LAYERS = 4
_ONE = "a convolution is replaced with what follows it alone: make that a module of its own, or write a spec by hand"
# Names of runs have no more ops than that.
_NAMED = 4


Span = tuple[int, int]


@dataclass(frozen=True)
class Found:
    """A chain of the model. name: for its spec, if it has none yet. paths: of the owner's submodules by the chain's
    names. span: the children that it is, of an nn.Sequential. inputs: of an example call."""

    owner: nn.Module
    path: str
    kind: str
    name: str
    chain: Chain
    paths: dict[str, str]
    span: Span | None
    inputs: tuple[Tensor, ...]

    @property
    def ops(self) -> tuple[str, ...]:
        return tuple(step.op for step in self.chain.plan.spec.chain)


@dataclass
class Search:
    """Walks a model. calls: of its submodules."""

    model: nn.Module
    calls: Mapping[nn.Module, Calls]
    chains: Chains
    found: list[Found] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    def __post_init__(self) -> None:
        names: dict[int, list[str]] = {}
        for name, module in self.model.named_modules(remove_duplicate=False):
            names.setdefault(id(module), []).append(name)
        self._names = names
        self._places = {id(module): place for place, module in enumerate(self.model.modules())}

    def walk(self, module: nn.Module, path: str = "") -> None:
        """Fills in what is found below a module, and what is left."""
        if is_replaced(module):
            self._leave(module, path, Refused("it was replaced before"))
            return
        before, why = len(self.found), None
        if module in self.calls and not _is_layer(module) and not is_sequential(module):
            try:
                self.found.append(self._whole(module, path))
                return
            except Refused as refused:
                why = refused
        taken: set[int] = set()
        if is_sequential(module) and module in self.calls:
            taken = self._runs(module, path)
        for index, (name, child) in enumerate(module._modules.items()):
            if child is not None and index not in taken:
                inner = f"{path}.{name}" if path else name
                self.walk(child, inner)
                # PyTorch's own modules take tensors of their parts without calling them.
                if child not in self.calls and not _is_layer(module) and any(True for _ in child.parameters(False)):
                    self._leave(child, inner, Refused("it is not called with these inputs"))
        # Of a module with chains inside it, that it is none itself says nothing.
        if why is not None:
            why = why.with_advice(self.calls[module].ops)
            if not (why.is_known and len(self.found) > before):
                self._leave(module, path, why)

    def _whole(self, module: nn.Module, path: str) -> Found:
        calls = self.calls[module]
        self._check(module, calls, [module], root=module)
        return self._found(module, module, path, calls, {}, None)

    def _runs(self, module: nn.Module, path: str) -> set[int]:
        """The chains among the children; returns the indices of what they take."""
        children = [child for child in module._modules.values() if child is not None]
        taken: set[int] = set()
        begin = 0
        while begin < len(children):
            end, why = self._longest(module, children, begin)
            refused = why
            while end - begin > 1:  # a single one is looked at as what it is
                try:
                    found = self._run(module, path, begin, end)
                except Refused as error:
                    refused = refused or error
                    end -= 1
                    continue
                self.found.append(found)
                taken.update(range(begin, end))
                break
            else:
                # Another module is looked at by itself.
                if refused is not None and not refused.is_known and _is_layer(children[begin]):
                    name = list(module._modules)[begin]
                    self._leave(children[begin], f"{path}.{name}" if path else name, refused)
            begin = max(end, begin + 1)
        return taken

    def _longest(self, module: nn.Module, children: Sequence[nn.Module], begin: int) -> tuple[int, Refused | None]:
        """The end of a run that may be a chain, by what the children are; why there is none."""
        end, why = begin, None
        while end < len(children):
            child = children[end]
            begins = isinstance(child, (nn.Linear, *_CONVOLUTIONS))
            if child not in self.calls or (end > begin and begins) or is_sequential(child):
                break
            try:
                self._check(child, self.calls[child], children[begin : end + 1])
            except Refused as refused:
                why = refused if end == begin else None
                break
            end += 1
        return end, why

    def _run(self, module: nn.Module, path: str, begin: int, end: int) -> Found:
        children = [child for child in module._modules.values() if child is not None]
        calls = self.calls[children[begin]]
        why = interference(module)
        if why is not None and "hooks" not in why:
            raise Refused(why)
        made = Run(children[begin:end])
        names = dict(zip(made._modules, list(module._modules)[begin:end], strict=True))
        return self._found(made, module, f"{path}[{begin}:{end}]", calls, names, (begin, end))

    def _check(
        self, module: nn.Module, calls: Calls, parts: Sequence[nn.Module], root: nn.Module | None = None
    ) -> None:
        """Raises Refused for what is known without a trace. root: the one whose hooks will run as before."""
        if calls.odd:
            raise Refused(calls.odd)
        if not calls.inputs:
            raise Refused("it is not called with tensors")
        own = interference(module)
        if own is not None and "hooks" not in own:
            raise Refused(own)
        inner = [part for each in parts for part in each.modules()]
        called = [part for part in inner if part in self.calls]
        linears = [part for part in called if isinstance(part, nn.Linear)]
        if len(linears) > (_MOST_LAYERS if root is not None else 1):
            raise Refused(f"it has {len(linears)} linear layers; {_ADVICE}", is_known=True, has_parts=True)
        convolutions = [part for part in called if isinstance(part, _CONVOLUTIONS)]
        if convolutions and len(convolutions) + len(linears) > 1:
            message = f"it has {len(convolutions)} convolutions and {len(linears)} linear layers; {_ONE}"
            raise Refused(message, is_known=True, has_parts=True)
        for part in inner:
            self._check_part(part, is_root=part is root)

    def _check_part(self, part: nn.Module, *, is_root: bool) -> None:
        names = self._names.get(id(part), [""])
        kind = type(part)
        own = [*part._parameters.values(), *part._buffers.values()]
        if any(tensor is not None for tensor in own):
            if len(names) > 1:
                raise Refused(f"{names[0]} is in the model under another name too: {names[1]}")
            if kind.__module__.startswith("torch.nn.") and not isinstance(part, _LAYERS):
                raise Refused(
                    f"{names[0]} is of type {kind.__name__}, which no chain has", is_known=True, has_parts=True
                )
        if isinstance(part, torch.jit.ScriptModule):
            raise Refused(f"{names[0]} is compiled by torch.jit", is_known=True)
        if parametrize.is_parametrized(part):
            raise Refused(f"{names[0]} has a parametrization")
        if is_replaced(part):
            raise Refused(f"{names[0]} was replaced before", is_known=True)
        why = None if is_root else interference(part)
        if why is not None:
            raise Refused(f"{names[0]} {why}")

    def _found(
        self, root: nn.Module, owner: nn.Module, path: str, calls: Calls, names: Mapping[str, str], span: Span | None
    ) -> Found:
        """The chain that a root is. names: of the owner's submodules for the root's, where these differ."""
        origin = None if span is None else f"children of an nn.Sequential, {path}"
        with within(path or type(owner).__name__, self._places[id(owner)], len(self._places)):
            chain = self.chains.of(root, calls.inputs, origin)
        why = misfit(chain, calls)
        if why is not None:
            raise Refused(why)
        paths = {}
        for own, inner in chain.paths.items():
            first, dot, rest = inner.partition(".")
            paths[own] = names.get(first, first) + dot + rest
        ops = [step.op for step in chain.plan.spec.chain]
        name = "_".join(ops[:_NAMED]) if span is not None else snake_case(type(owner).__name__)
        return Found(owner, path, type(owner).__name__, name, chain, paths, span, calls.inputs)

    def _leave(self, module: nn.Module, path: str, refused: Refused) -> None:
        self.left.append(Left(path, type(module).__name__, refused.reason, refused.diagnostic))


def is_sequential(module: nn.Module) -> bool:
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def _is_layer(module: nn.Module) -> bool:
    """One of PyTorch's own, which is an operator."""
    return type(module).__module__.startswith("torch.nn.") and not is_sequential(module)
