"""Words that emitted code uses itself: a spec cannot take one of them for a name that stands beside it.

What a rendering's own words are is found by rendering each spec twice, once with all its names changed: a word that is
in both texts comes from a template or a support header.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import PydanticCustomError

from fusegen.ir.names import KERNEL_NAMES, OP_NAMES, REFERENCE_NAMES, is_kernels_own
from fusegen.plan.load import plan_document
from fusegen.plan.plan import Plan
from fusegen.plan.shapes import Shapes
from fusegen.plan.tuning import Architecture, Measurement
from fusegen.render.package import render_package, support_files
from fusegen.spec.names import check_attribute, check_class, check_identifier
from fusegen.spec.yaml import parse_yaml
from tests.emulate.other_chains import HAND_PICKED
from tests.fuzz.mutations import as_text

ROOT = Path(__file__).resolve().parents[2]
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "specs").glob("*.yaml"))}
TEXTS |= {name: other.spec(name) for name, other in HAND_PICKED.items()}

_WORD = re.compile(r"(?<![\w.])(?<!->)(?<!::)[A-Za-z_]\w*")


def renamed(data: dict[str, Any]) -> dict[str, Any]:
    """The same spec with another name for everything."""
    names = {*data["dims"], *data.get("arguments", {}), *data["inputs"]}
    names |= {step[key] for step in data["chain"] for key in ("name", "parameter", "save") if key in step}
    names -= {"randn", "rand", "ones", "zeros"}

    def change(value: Any, key: str = "") -> Any:
        if isinstance(value, str) and value in names and key not in ("op", "type"):
            return f"zq_{value}"
        if isinstance(value, list):
            return [change(each, key) for each in value]
        if isinstance(value, dict):
            return {change(name) if key in ("dims", "arguments", "inputs") else name: change(each, name)
                    for name, each in value.items()}  # fmt: skip
        return value

    return {key: change(value, key) for key, value in data.items()} | {"name": f"zq_{data['name']}"}


def tuned(plan: Plan) -> Plan:
    """With a table for every program."""
    shapes = Shapes(sum_blocks=16)
    found = [Measurement(each.name, plan.spec.dtypes[0], 64, 64, None, shapes, 1.0, 2.0) for each in plan.programs]
    return replace(plan, tuning=(Architecture("sm_90", "NVIDIA Test", "2.10.0", "13.0", tuple(found)),))


@functools.cache
def both(name: str) -> tuple[Plan, dict[str, str], dict[str, str]]:
    """The plan of a spec, and the files of it and of its renamed twin, by their names in the package."""
    document = parse_yaml(TEXTS[name], f"{name}.yaml")
    plan = tuned(plan_document(document))
    twin = tuned(plan_document(parse_yaml(as_text(renamed(document.data)), "twin.yaml")))
    return plan, *({path.split("/")[1]: text for path, text in render_package(each).items()} for each in (plan, twin))


def code(text: str) -> str:
    """C++ without comments, strings, directives and what stands in angle brackets of an include."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r'"(\\.|[^"\\])*"', '""', text)
    return re.sub(r"(?m)^\s*#.*$", "", text)


def is_refused(word: str, check=check_identifier) -> bool:
    try:
        check(word)
    except PydanticCustomError:
        return True
    return False


def of_the_plan(plan: Plan) -> set[str]:
    """Names that the graph gives, which keeps clear of the spec's own, and names of kernels: no kernel uses another."""
    programs = [program for variant in plan.variants for program in (variant.forward, variant.backward)]
    kernels = [kernel for program in programs for kernel in program.kernels]
    nodes = {node.name for variant in plan.variants for node in variant.chain.graph.nodes}
    nodes |= {node.name for kernel in kernels for node in kernel.setup}
    nodes |= {n.name for k in kernels for each in k.passes for n in (*each.values, *each.sums, *each.results)}
    return nodes | {kernel.name for kernel in kernels}


def shared(texts: tuple[dict[str, str], ...], path: str, parts) -> set[str]:
    """The words that are in some parts of a file and of its twin."""
    own, twin = (set(_WORD.findall(" ".join(parts(code(files[path]))))) for files in texts)
    assert own and twin
    return own & twin


def kernels(text: str) -> list[str]:
    """The kernels of kernels.cu, with their parameters."""
    return re.findall(r"(?ms)^template <[^>]*>\n__global__.*?^}$", text)


def entries(text: str) -> list[str]:
    """The launchers of kernels.cu: what takes a stream."""
    return [each for each in re.findall(r'(?ms)^extern "" int .*?^}$', text) if "void* stream" in each]


def ops(text: str) -> list[str]:
    """The functions of bindings.cpp behind their names."""
    return re.findall(r"(?ms)^std::(?:tuple|vector)<[^>]*> \w+(\(.*?^})$", text)


@pytest.mark.parametrize("name", TEXTS)
def test_kernels(name: str) -> None:
    plan, *texts = both(name)
    words = shared(texts, "kernels.cu", kernels) - of_the_plan(plan) - OP_NAMES
    assert {word for word in words if not is_kernels_own(word) and not is_refused(word)} == set()


@pytest.mark.parametrize(("path", "parts"), [("kernels.cu", entries), ("bindings.cpp", ops)])
@pytest.mark.parametrize("name", TEXTS)
def test_launchers_and_ops(name: str, path: str, parts) -> None:
    _, *texts = both(name)
    words = shared(texts, path, parts) - OP_NAMES - OF_THE_RESULT
    assert {word for word in words if not is_refused(word)} == set()


@pytest.mark.parametrize("name", TEXTS)
def test_functions_of_the_module(name: str) -> None:
    _, *texts = both(name)
    own, twin = (functions(files["__init__.py"]) for files in texts)
    for function in own.keys() & twin.keys() - WITHOUT_SPEC_NAMES:
        words = (own[function] & twin[function]) - OF_THE_RESULT
        if function == "__init__":  # only arguments, which are attributes at times
            assert {word for word in words if not is_refused(word, check_attribute)} == set()
        elif function == "reference":  # inputs and saved values; the running value keeps clear of both
            words -= {"v"}
            assert {word for word in words if word not in REFERENCE_NAMES and not is_refused(word)} == set()
            assert REFERENCE_NAMES <= OP_NAMES
        else:
            assert {word for word in words - OP_NAMES if not is_refused(word)} == set(), function


# Refused where a spec's names are compared with each other: what belongs to the result `y`.
OF_THE_RESULT = {"grad_y", "grad_y_in"}
WITHOUT_SPEC_NAMES = {"_check_shape", "_autocast", "_mode", "_is_plain", "_autograd_sees", "_Train.backward"}
WITHOUT_SPEC_NAMES |= {"_parameter", "_buffer", "_differentiate", "_Eval.backward", "_Fused.backward"}


def functions(text: str) -> dict[str, set[str]]:
    """What each function of a module calls things, but for the variables of comprehensions, which hide nothing."""
    tree = ast.parse(text)
    methods = {method: each.name for each in tree.body if isinstance(each, ast.ClassDef) for method in each.body}
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            owner = f"{methods[node]}." if methods.get(node, "").startswith("_") else ""
            below = list(ast.walk(ast.Module(node.body, [])))
            names = {each.id for each in below if isinstance(each, ast.Name)} | {each.arg for each in node.args.args}
            names -= {each.target.id for each in below if isinstance(each, ast.comprehension)
                      and isinstance(each.target, ast.Name)}  # fmt: skip
            found[owner + node.name] = names
    return found


@pytest.mark.parametrize("name", TEXTS)
def test_a_class_hides_nothing_that_its_module_looks_up(name: str) -> None:
    _, *texts = both(name)
    own, twin = (looked_up(files["__init__.py"]) for files in texts)
    assert {word for word in own & twin if not is_refused(word, check_class)} == set()


def looked_up(text: str) -> set[str]:
    tree = ast.parse(text)
    loads = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    top = {alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom | ast.Import)
           for alias in node.names}  # fmt: skip
    top |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return {word for word in loads if word in top or hasattr(builtins, word)}


def test_macros_of_the_headers() -> None:
    macros = {name for text in support_files().values() for name in re.findall(r"(?m)^#\s*define (\w+)", text)}
    macros |= {name for text in support_files().values() for name in re.findall(r"(?m)^#\s*ifn?def (\w+)", text)}
    assert macros and {macro for macro in macros if not is_refused(macro)} == set()


@pytest.mark.parametrize("word", sorted(OP_NAMES | KERNEL_NAMES))
def test_no_word_of_the_lists_is_without_a_use(word: str) -> None:
    """Each refuses a name that someone may want."""
    files = [text for name in TEXTS for text in both(name)[1].values()] + list(support_files().values())
    assert any(re.search(rf"\b{word}\b", text) for text in files)
