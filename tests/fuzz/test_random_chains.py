"""Random chains of all kinds: each is planned, or refused for a reason that is known, and the kernels compute it.

FUSEGEN_CHAINS=5000-9000 plans the chains of these seeds instead, and runs those of the first hundredth of them:

    FUSEGEN_CHAINS=5000-9000 python -m pytest tests/fuzz/test_random_chains.py
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

from fusegen.errors import SpecError
from fusegen.plan.load import planned_document, planned_file
from fusegen.render.package import render_all
from fusegen.spec.yaml import parse_yaml
from fusegen.standalone.export import export
from tests.fuzz.claims import check_error
from tests.fuzz.mutations import as_text
from tests.fuzz.random_chains import RandomChain

# What PyTorch runs and fusegen refuses, of the chains that are drawn.
KNOWN = (
    "a parameter may vary over the channels alone",
    "dropout needs [rows, channels], and the running value is",
    "PyTorch would pair rows with channels",
    "one of several outputs has the dimension of the channels",
    "what other regions and 'outputs' take has the channels",
    "takes values with the channels",
    "one chain can normalise by one number of groups",
)
FIRST, END = map(int, os.environ.get("FUSEGEN_CHAINS", "0-150").split("-"))
RUN = {"rows": 25, "leading": 20, "images": 22, "convolutions": 27, "groups": 33}
DTYPES = (("float32",), ("float32", "bfloat16", "float16"), ("float16",), ("bfloat16", "float16"))
SEEDS = (
    [(seed, "") for seed in range(FIRST, FIRST + max(1, (END - FIRST) // 100))]
    if "FUSEGEN_CHAINS" in os.environ
    else [(seed, kind) for kind, seed in RUN.items()]
)
SHAPES = ((5, 6, 12, 3), (1, 8, 12, 2))


def check_refusal(error: SpecError, seed: int, text: str) -> None:
    """The reasons are of the table, and each is at a place."""
    check_error(error, "spec.yaml", text)
    assert all(each.location is not None for each in error.diagnostics), text
    unknown = [each.message for each in error.diagnostics if not any(k in each.message for k in KNOWN)]
    assert not unknown, f"seed {seed}: {unknown}\n{text}"


def test_plans() -> None:
    """A chain that is refused has a reason of the table; one that is not computes its graph, and has the same text
    twice."""
    refused = 0
    for seed in range(FIRST, END):
        text = as_text(RandomChain(seed).data("drafted", DTYPES[seed % len(DTYPES)]))
        try:
            files = render_all([planned_document(parse_yaml(text, "spec.yaml", lenient=True))])
        except SpecError as error:
            check_refusal(error, seed, text)
            refused += 1
            continue
        if seed % 10 == 0:
            again = render_all([planned_document(parse_yaml(text, "spec.yaml"))])
            assert again == files, f"seed {seed}\n{text}"
    assert refused <= max(3, (END - FIRST) // 20)


def test_exports(tmp_path: Path) -> None:
    """What plans is one file, too."""
    path, made = tmp_path / "drafted.yaml", 0
    for seed in range(FIRST, END, 10):
        path.write_text(as_text(RandomChain(seed).data("drafted")))
        try:
            planned_file(path)
        except SpecError:
            continue
        ast.parse(export(path))
        made += 1
    assert made > (END - FIRST) // 30


def test_chains_of_a_seed_are_the_same() -> None:
    texts = [[as_text(RandomChain(seed).data("drafted")) for seed in range(20)] for _ in range(2)]
    assert texts[0] == texts[1] and len(set(texts[0])) == 20
    ops = {step["op"] for seed in range(200) for step in RandomChain(seed).chain}
    assert ops >= {"linear", "matmul", "bmm", "chunk", "glu", "batch_norm", "group_norm", "softmax", "masked_fill"}
    assert any(re.fullmatch(r"conv_transpose\dd", op) for op in ops)
    assert any("normalized_shape" in step for seed in range(50) for step in RandomChain(seed, "leading").chain)


@pytest.mark.torch
@pytest.mark.nvcc
@pytest.mark.parametrize("seed, kind", SEEDS)
def test_kernels(seed: int, kind: str, tmp_path: Path, emulation_cache: Path) -> None:
    """Results and every gradient against double precision, in training and evaluation, on the emulator."""
    pytest.importorskip("torch")
    from tests.emulate.suites import compared, emulated_suite

    name = f"drafted_{kind or 'any'}_{seed}"
    dtype = "bfloat16" if seed % 2 else "float32"
    text = as_text(RandomChain(seed, kind).data(name, (dtype,)))
    try:
        plan = planned_document(parse_yaml(text, "spec.yaml", lenient=True))
    except SpecError as error:
        assert not kind, f"RUN has seeds whose chains are planned: {error}"
        check_refusal(error, seed, text)
        return
    found, wrong = compared(emulated_suite(plan, tmp_path, emulation_cache), SHAPES)
    assert not wrong and found, text
