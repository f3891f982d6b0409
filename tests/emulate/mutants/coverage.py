"""Which barriers, shuffles and copies of the templates no mutant touches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from unittest import mock

from jinja2 import DictLoader

from fusegen.paths import templates_directory
from fusegen.plan.load import plan_file
from fusegen.render import environment as rendering
from fusegen.render.cuda import render_kernels
from tests.chains.originals import CHAINS
from tests.emulate.mutants.mutant import Mutant
from tests.emulate.mutants.scenario import ROOT, Copy

# In code, not in a comment. The instructions that math.cuh asks for by name are arithmetic of one thread, an empty one
# only keeps the compiler from moving others, and the wait for earlier kernels has tests/build/test_waits.py. Those of
# exchange.cuh and panels.cuh are a GPU's alone: mutants touch what the emulator has in their place, and what they do
# themselves (how many bytes, which parity) shows in `fusegen verify` on a GPU.
_NOT_SHARED = (
    r"(?:\(\"(?:rcp|max|min|ex2)\.| volatile\(\"(?:griddepcontrol\.wait;)?\" ::: \"memory\"\);|"
    r" volatile\(\s*\"(?:red\.release|ld\.acquire|createpolicy|ld\.global\.L2)|"
    r"(?: volatile)?\(\s*\"(?:mapa\.|mbarrier\.|fence\.mbarrier_init\.|st\.async\.|\{ \.reg \.pred done;))"
)
_CALL = re.compile(
    r"(?m)^(?P<before>(?:(?!//|\{#).)*?)"
    rf"(?P<call>\b(?:__(?:sync|shfl|barrier|cluster_barrier|pipeline)\w*|cooperative_groups\b|asm\b(?!{_NOT_SHARED})|"
    r"emulate::(?:add_and_release|acquire_from)\b|(?:count_part|wait_for_parts)(?=\(counter[^*]*\);)|"
    r"(?:cluster_arrive|cluster_wait|end_row|wait_for_rows<[^<>]*>)(?=\(\);)))"
)
_TAG = re.compile(r"/\*<(\S+?):(\d+)>\*/")

Place = tuple[str, int]
"""A template or support header, and the number of a call in it."""


def template_sources() -> dict[str, str]:
    """Every template and support header, by its path below the templates' directory."""
    root = templates_directory()
    paths = [path for path in root.rglob("*") if path.suffix in (".j2", ".cuh", ".h")]
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def untouched(sources: Mapping[str, str], copies: Iterable[Copy], mutants: Mapping[str, list[Mutant]]) -> list[Place]:
    """The calls in `sources` that no mutant covers where they are rendered. mutants: those of each copy."""
    tagged = {name: _tagged(name, text) for name, text in sources.items()}
    found = {place for text in tagged.values() for place in _places(text)}
    touched: set[Place] = set()
    for name in (name for name in sources if not name.endswith(".j2")):
        group = [each for copy in mutants.values() for each in copy if name == f"support/{each.file}"]
        touched |= _touched(tagged[name], group)
    # Rendered with the tags, which come out where the calls do.
    env = rendering.environment().overlay(loader=DictLoader(tagged), cache_size=0)
    with mock.patch.object(rendering, "environment", lambda: env):
        for copy in copies:
            text = render_kernels(plan_file(ROOT / "specs" / f"{CHAINS[copy.chain].spec}.yaml"))
            group = [each for each in mutants[copy.name] if each.file == "kernels.cu"]
            touched |= _touched(copy.cut(text), group)
    return sorted(found - touched)


def _tagged(name: str, text: str) -> str:
    number = iter(range(len(text)))
    return _CALL.sub(lambda match: f"{match['before']}/*<{name}:{next(number)}>*/{match['call']}", text)


def _places(tagged: str) -> list[Place]:
    return [(match[1], int(match[2])) for match in _TAG.finditer(tagged)]


def _touched(tagged: str, mutants: Iterable[Mutant]) -> set[Place]:
    """The tagged calls in the mutants' spans."""
    text = _TAG.sub("", tagged)
    spans = [each.span(text) for each in mutants]
    touched, removed = set(), 0
    for match in _TAG.finditer(tagged):
        at = match.start() - removed
        removed += len(match[0])
        if any(start <= at < end for start, end in spans):
            touched.add((match[1], int(match[2])))
    return touched
