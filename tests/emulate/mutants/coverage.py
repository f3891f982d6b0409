"""Which barriers, shuffles and copies of the kernels no mutant touches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from fusegen.paths import templates_directory
from tests.emulate.mutants.mutant import Mutant

# In code, not in a comment. The instructions that math.cuh asks for by name are arithmetic of one thread, an empty one
# only keeps the compiler from moving others, and the wait for earlier kernels has tests/build/test_waits.py. Those of
# exchange.cuh and l2_steps.cuh are a GPU's alone: mutants touch what the emulator has in their place, and what they do
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


# What only a GPU has, and no emulator: its tensor cores, and what feeds them.
_OF_A_GPU = ("hopper.cuh", "pipeline.cuh", "tensor_maps.cuh")


def template_sources() -> dict[str, str]:
    """Every template and support header with code that is emulated, by its path below the templates' directory."""
    root = templates_directory()
    paths = [path for path in root.rglob("*") if path.suffix in (".j2", ".cuh", ".h") and path.name not in _OF_A_GPU]
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def untouched(sources: Mapping[str, str], mutants: Iterable[Mutant]) -> list[tuple[str, int]]:
    """The calls in `sources` that no mutant covers: the file, and the number of the line."""
    spans: dict[str, set[tuple[int, int]]] = {}
    for mutant in mutants:
        file = f"support/{mutant.file}"
        spans.setdefault(file, set()).add(mutant.span(sources[file]))
    found = []
    for name, text in sources.items():
        for at in (match.start("call") for match in _CALL.finditer(text)):
            if not any(start <= at < end for start, end in spans.get(name, ())):
                found.append((name, text.count("\n", 0, at) + 1))
    return sorted(found)
