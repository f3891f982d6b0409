"""The text of a standalone file: header, sources, and the module that calls them, as in a package."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from fusegen.ops.norms import Norm
from fusegen.plan.modules.module import ModulePlan
from fusegen.render.module import call_context, formula, returns
from fusegen.render.python.broadcast_lines import eager_lines
from fusegen.render.python.reference_module import construct, signature
from fusegen.render.python.regions import base, regions_context
from fusegen.render.text.environment import render
from fusegen.standalone.header import header
from fusegen.standalone.inputs import Inputs
from fusegen.standalone.named import NamedPlan, named_plans
from fusegen.standalone.sources import DIRECTORY, bare, cpp_source, cuda_source, plain, without_layers, without_passes
from fusegen.standalone.support import support_text

# Functions and layers that a package calls between regions, and that are in `_support` here.
_FUNCTION = re.compile(r"\b(?:F|torch)\.(softmax|softmin|log_softmax|logsumexp|normalize)\(")
_LAYER = re.compile(r"\bnn\.(?!Parameter\b)(\w+)\(")
# Lines of a package's constructor for what a standalone module lacks.
_NOT_HERE = ("_factory", "self._fusegen_initial_", "self.fusegen_precision")
_EVERYWHERE = [
    *(("", "os"), ("", "torch"), ("torch", "Tensor"), ("torch", "nn")),
    *(("torch.utils.cpp_extension", "load_inline"), ("types", "SimpleNamespace")),
]
# Where a package's call has a reason without words of its own.
_REFUSED = re.compile(r"if ((?:\(\n.*?\n *\)|[^\n]*)):\n( *)return None, _support\.REFUSED", re.DOTALL)
_NO_SHARE = re.compile(r"_support\.is_no_share\(_(\w+)_p\)")
_CONDITION = "_support.refused("


@dataclass(frozen=True)
class RegionText:
    """variable: of the class. text: statements that make it, on their own."""

    name: str
    variable: str
    class_name: str
    text: str


def render_standalone(planned: ModulePlan, inputs: Inputs) -> str:
    """The whole file, in ASCII."""
    cuda, cpp, found = cuda_source(planned), cpp_source(planned), named_plans(planned)
    spec, precisions = planned.spec, any(named.plan.has_precisions for named in found)
    lines = [_LAYER.sub(r"_support.\1(", line.replace(", **_factory", "")) for line in _constructed(planned)]
    lines = [line for line in lines if not line.startswith(_NOT_HERE) and line != "pass"]
    unwanted = ("device:", "dtype:", "precision:")
    arguments = [text for text in signature(spec, precisions) if not text.startswith(unwanted)]
    arguments = arguments[:-1] if arguments[-1] == "*" else arguments
    context = {
        "name": spec.name,
        "paths": spec.state_dict,
        "signature": arguments,
        "construct": lines,
        "formula": [bare(line) for line in formula(planned)],
        "returns": returns(spec),
        "base": base(planned),
        "regions": [] if planned.single else [_region(named) for named in found],
        **(_call(found[0]) if planned.single else _regions(planned)),
    }
    module = render(f"{DIRECTORY}/module.py.j2", **context)
    support = support_text(re.findall(r"\b_support\.(\w+)", module))
    for module_, name in _EVERYWHERE:
        support.imports.setdefault(module_, set()).add(name)
    if any("Sequence[" in each for each in arguments):
        support.imports["collections.abc"] = {"Sequence"}
    text = render(
        f"{DIRECTORY}/fused.py.j2",
        name=spec.name,
        digest=hashlib.sha256(f"{cuda}\0{cpp}".encode()).hexdigest()[:12],
        header=without_passes(planned, "\n".join(header(planned))).split("\n"),
        imports=_imports(support.imports),
        cuda=cuda,
        cpp=cpp,
        support=without_passes(planned, without_layers("\n".join(support.lines))),
        module=without_layers(module),
        given=inputs,
        route=precisions,
        architectures=";".join(_architecture(target) for target in spec.targets),
    )
    return plain(text)


def _architecture(target: str) -> str:
    """As torch names it: 9.0a for sm_90a."""
    return re.sub(r"sm_(\d+)(\d)", r"\1.\2", target)


def _constructed(planned: ModulePlan) -> list[str]:
    """The constructor's body, as a package has it."""
    return construct(planned, eager_lines(planned), precisions=False)


def _regions(planned: ModulePlan) -> dict[str, Any]:
    """What the template of several regions is given: as in a package, with functions in place of norms' forward()."""
    context = regions_context(planned)
    norms = {step.name: step.op for each in planned.regions for step in each.steps[:1] if isinstance(step, Norm)}
    lines = [_FUNCTION.sub(r"_support.\1(", line) for line in context["calls"]]
    for name, op in norms.items():
        lines = [line.replace(f" self.{name}(", f" _support.{op}(self.{name}, ") for line in lines]
    return {**context, "calls": lines}


def _region(named: NamedPlan) -> RegionText:
    context = _call(named)
    about = ", ".join(step.op for step in named.plan.spec.chain)
    text = render(f"{DIRECTORY}/region.py.j2", **context, about=f"{about}.")
    return RegionText(named.region, named.variable, context["class_name"], text)


def _call(named: NamedPlan) -> dict[str, Any]:
    """What the templates of the operators and the call are given: as in a package, on functions of the extension."""
    context = call_context(named.plan)
    body = "\n".join([*context["body"], ""])
    body = _REFUSED.sub(lambda found: _with_reason(found[1], found[2]), body)
    return {
        **context,
        "kinds": "()",
        "body": _with_conditions(body).splitlines(),
        "kernels": named.kernels,
    }


def _with_reason(condition: str, indent: str) -> str:
    return f"if {condition}:\n{indent}return None, _support.because({_text(condition)})"


def _with_conditions(body: str) -> str:
    """A body that gives each condition in words, too."""
    first, *others = body.split(_CONDITION)
    for each in others:
        end = next(i for i in range(len(each)) if each.count(")", 0, i + 1) > each.count("(", 0, i + 1))
        first += f"{_CONDITION}{each[:end]}, {_text(each[:end])}{each[end:]}"
    return first


def _text(condition: str) -> str:
    """A condition under which PyTorch refuses a call, in words, as a literal."""
    share = _NO_SHARE.fullmatch(condition)
    if share:
        return f'"{share[1]}.p must be between 0 and 1"'
    return repr(" ".join(condition.removeprefix("(\n").removesuffix("\n)").split()))


def _imports(found: dict[str, set[str]]) -> list[list[str]]:
    """Lines of the standard library, and of torch. found: the names that are imported, by module; of "" modules."""
    lines = [f"import {name}" for name in sorted(found.get("", ()))]
    lines += [f"from {module} import {', '.join(sorted(found[module]))}" for module in sorted(found) if module]
    of_torch = [line.split()[1].startswith("torch") for line in lines]
    return [[line for line, each in zip(lines, of_torch, strict=True) if each == wanted] for wanted in (False, True)]
