"""No name of a chain is a keyword, a macro, or a name of our own in the C++ that is emitted for it.

What of an emitted file comes from the chain is found by rendering each chain twice, once with all its names changed.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusegen.build.libraries import find_libraries
from fusegen.build.toolchain import find_toolchain
from fusegen.paths import SUPPORT, templates_directory
from fusegen.plan.load import plan_document
from fusegen.plan.modules.plan import Plan
from fusegen.render.cuda import render_kernels
from fusegen.render.ops.binding import render_bindings
from fusegen.render.ops.operators import ops
from fusegen.render.programs.launchers_header import render_launchers_header
from fusegen.render.text.identifiers import ENDINGS, IN_EVERY_FILE, identifier
from fusegen.spec.yaml import parse_yaml
from tests.chains.names import renamed
from tests.emulate.other_chains import HAND_PICKED
from tests.fuzz.mutations import as_text

# Every kind of kernel, each norm, a further input, constants, operands of each extent.
CHAINS = ("every_norm", "two_inputs", "group_before_layer", "full_parameter", "layer_norm_of_input", "reuse")
MARK = "zq"

_SPELT = re.compile(rf"[A-Za-z]\w*_({'|'.join(ENDINGS)})")
_SPELT_IN_KERNELS = re.compile(rf"[A-Za-z]\w*_({'|'.join(IN_EVERY_FILE)})")


def plan_of(name: str, change=lambda name: name) -> Plan:
    data = parse_yaml(HAND_PICKED[name].spec(name), f"{name}.yaml").data
    return plan_document(parse_yaml(as_text(renamed(data, change, name)), f"{name}.yaml"))


def words(text: str) -> set[str]:
    """The identifiers of C++ code, but for those that only mean something behind `.`, `->` or `::`."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r'"(\\.|[^"\\])*"', '""', text)
    text = re.sub(r"(?m)^\s*#\s*include.*$", "", text)
    return set(re.findall(r"(?<![\w.])(?<!->)(?<!::)[A-Za-z_]\w*", text))


@functools.cache
def rendered(name: str) -> tuple[set[str], set[str], set[str]]:
    """The words of the chain's C++, of the same with all names changed, and the plan's own names."""
    plan = plan_of(name)
    texts = [
        render_kernels(each) + render_launchers_header(each) + render_bindings(each)
        for each in (plan, plan_of(name, lambda word: MARK + word))
    ]
    return *map(words, texts), set(names_of(plan))


def names_of(plan: Plan) -> Iterator[str]:
    """Of tensors and values."""
    for variant in plan.variants:
        yield from (node.name for node in variant.chain.graph.nodes)
    for program in plan.programs:
        for kernel in program.kernels:
            yield from (tensor.name for tensor in (*kernel.reads, *kernel.writes))
            yield from (node.name for node in kernel.nodes)
        yield from (tensor.name for tensor in (*program.inputs, *program.outputs))
    for op in ops(plan):
        yield from (argument.name for argument in op.arguments)


@pytest.mark.parametrize("name", CHAINS)
def test_what_comes_from_a_chain_ends_as_nothing_else_does(name: str) -> None:
    own, twin, names = rendered(name)
    spelt = {identifier(each, ending) for each in names for ending in ENDINGS}
    assert len(own - twin) > 20
    assert {word for word in own - twin if word not in spelt} == set()
    assert {word for word in twin if MARK in word and not _SPELT.fullmatch(word)} == set()
    assert {word for word in own & twin if _SPELT.fullmatch(word)} <= spelt


@pytest.mark.parametrize("name", CHAINS)
def test_what_is_read_has_no_other_name(name: str) -> None:
    """A word that the chain's names could become, and that our own code has, would hide it."""
    own, _, names = rendered(name)
    ours = own - {identifier(each, ending) for each in names for ending in ENDINGS}
    assert len(ours) > 100
    assert {word for word in ours if _SPELT.fullmatch(word)} == set()


def test_nothing_in_the_support_headers_ends_so() -> None:
    """Nor in a template, which may write more than the chains above make it write."""
    directory = templates_directory()
    kernels = [*(directory / SUPPORT).rglob("*.cuh")]
    headers = [*kernels, *(directory / SUPPORT).glob("*.h")]
    templates = [*directory.glob("*.cu.j2"), directory / "bindings.cpp.j2", directory / "launchers.h.j2"]
    assert {"row.cuh", "types.cuh", "call.h"} <= {path.name for path in headers} and len(templates) == 5
    found = set()
    for path in (*headers, *templates):
        text = re.sub(r"(\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\})\w*", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        spelt = _SPELT_IN_KERNELS if path in kernels else _SPELT
        found |= {(path.name, word) for word in words(text) if spelt.fullmatch(word)}
    assert found == set()


def macros(compiler: list[str], source: str, root: Path) -> set[str]:
    """Every macro that is defined behind a source's includes."""
    file = root / f"{compiler[0].rpartition('/')[2]}.cpp"
    file.write_text(source, encoding="utf-8")
    command = [*compiler, "-std=c++17", "-I", str(templates_directory() / SUPPORT), str(file)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"(?m)^#define (\w+)", out))


@pytest.mark.torch
def test_no_macro_of_the_binding_ends_so(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    compiler = ["g++", "-E", "-dM", "-isystem", str(find_libraries().torch_include)]
    headers = ("package_info.h", "torch_arguments.h", "torch_glue.h", "torch_products.h")
    found = macros(compiler, "".join(f'#include "{name}"\n' for name in headers), tmp_path)
    assert len(found) > 1000 and "NULL" in found
    assert {name for name in found if _SPELT.fullmatch(name)} == set()


@pytest.mark.nvcc
def test_no_macro_of_the_kernels_ends_so(tmp_path: Path) -> None:
    support = templates_directory() / SUPPORT
    headers = sorted(path.relative_to(support) for path in support.rglob("*.cuh"))
    compiler = [*find_toolchain().nvcc_command(), "-E", "-Xcompiler", "-dM", "-arch=sm_90", "-x", "cu"]
    found = macros(compiler, "#include <algorithm>\n" + "".join(f'#include "{name}"\n' for name in headers), tmp_path)
    assert len(found) > 1000 and "cudaStreamLegacy" in found
    assert {name for name in found if _SPELT.fullmatch(name)} == set()


def test_two_names_never_have_one_spelling() -> None:
    """Whatever the names: the last underscore is where the ending begins."""
    assert all(re.fullmatch("[a-z0-9]+", ending) for ending in ENDINGS)
    with pytest.raises(KeyError):
        identifier("x", "of")
