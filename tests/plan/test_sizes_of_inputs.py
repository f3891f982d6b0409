"""The sizes that people ask for, of chains whose first input has more dimensions than two."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from fusegen.bench.shapes import sizes_of  # noqa: E402
from fusegen.errors import SpecError  # noqa: E402
from fusegen.explain.choices import Question, size_of  # noqa: E402
from fusegen.plan.load import plan_document, planned_document  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.spec.yaml import parse_yaml  # noqa: E402
from fusegen.tune.command import _sizes  # noqa: E402
from fusegen.tune.options import Options  # noqa: E402

FILM = """\
fusegen: 1
name: film
dims: {batch: 16, positions: 10, features: 32}
inputs: {x: [batch, positions, 2 * features], scale: [batch, features]}
chain:
  - {op: glu}
  - {op: mul, input: scale}
"""
SCORES = """\
fusegen: 1
name: scores
dims: {batch: 16, queries: 10, keys: 24, width: 8}
inputs: {q: [batch, queries, width], k: [batch, keys, width]}
chain:
  - {op: bmm, input: k, transposed: true}
  - {op: softmax}
"""
KINDS = {"film": (FILM, 64, 32), "scores": (SCORES, 8, 24)}


@pytest.fixture(params=KINDS)
def case(request):
    """A plan, the last dimension of its first input, the channels of its result."""
    text, width, channels = KINDS[request.param]
    return plan_document(parse_yaml(text, f"{request.param}.yaml")), width, channels


def test_the_batch_grows_where_launch_shapes_are_measured(case) -> None:
    plan, _, channels = case
    assert [(size.rows, size.given[:2]) for size in _sizes(plan, Options())] == [
        (20, (2, 10)),
        (160, (16, 10)),
        (1280, (128, 10)),
    ]
    (size,) = _sizes(plan, Options(rows=(64,)))
    assert (size.rows, size.given[:2], size.channels) == (60, (6, 10), channels)


def test_a_shape_is_that_of_the_first_input(case) -> None:
    plan, width, channels = case
    found = sizes_of(module_of(plan), f"3x5x{width}")
    assert (found.given, found.rows, found.channels) == ((3, 5, width), 15, channels)
    with pytest.raises(ValueError, match="it takes those of the input, 3"):
        sizes_of(module_of(plan), "15x8")


def test_channels_that_two_parts_do_not_have() -> None:
    with pytest.raises(ValueError, match="does not allow 3x5x7"):
        sizes_of(planned_document(parse_yaml(FILM, "film.yaml")), "3x5x7")


def test_rows_of_a_question(case) -> None:
    plan, _, channels = case
    assert size_of(plan, Question()).given[:2] == (16, 10)
    found = size_of(plan, Question(rows=40))
    assert (found.given[:2], found.rows, found.channels) == ((4, 10), 40, channels)
    with pytest.raises(SpecError, match="cannot have 64 rows .the nearest is 60"):
        size_of(plan, Question(rows=64))
