"""`fusegen plan --format json`: its schema, and values against arithmetic done by hand."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from fusegen.explain.build import build
from fusegen.explain.choices import Question
from fusegen.explain.formats import write
from fusegen.explain.model import Report
from fusegen.plan.summary import summary
from tests.explain.reports import NAMES, report
from tests.plan.planning import committed

ROWS, CHANNELS = 1024, 8192
MATRIX, VECTOR = 4 * ROWS * CHANNELS, 4 * CHANNELS


def parsed(name: str) -> dict:
    return json.loads(write(report(name), "json"))


@pytest.mark.parametrize("name", NAMES)
def test_it_has_its_schema_and_is_read_back(name: str) -> None:
    data = parsed(name)
    schema = Report.model_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(data, schema)
    assert Report.model_validate_json(json.dumps(data)) == report(name)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**data, "bytes": 0}, schema)


def test_what_a_kernel_reads_and_writes() -> None:
    program = parsed("matmul_bn_bias_div_swish")["variants"][0]["programs"][0]
    column = program["schedules"][0]
    (kernel,) = column["kernels"]
    assert (column["kind"], kernel["name"]) == (program["taken"], "train_forward_column")
    sizes = {each["name"]: (each["shape"], each["dtype"], each["bytes"]) for each in kernel["reads"]}
    assert sizes["matmul_product"] == ([ROWS, CHANNELS], "float32", MATRIX)
    assert sizes["bn_weight"] == ([1, CHANNELS], "float32", VECTOR)
    assert sizes["bias"] == ([1, 1], "float32", 4)
    assert sizes["bn_num_batches_tracked"] == ([1, 1], "int64", 8)
    assert {each["name"] for each in kernel["writes"]} == set(program["writes"])
    # The product, five vectors, a number and a count; the result, four vectors and a count.
    assert kernel["bytes"] == column["bytes"] == 2 * MATRIX + 9 * VECTOR + 4 + 2 * 8
    assert kernel["microseconds"] == pytest.approx(kernel["bytes"] / 3000e9 * 1e6, abs=1e-3)


@pytest.mark.parametrize("name", NAMES[:2])
def test_it_says_what_the_summary_says(name: str) -> None:
    """One source: what plan.json has of programs is here with the same figures."""
    plan = committed(name)
    for found, known in zip(report(name).variants, summary(plan)["variants"], strict=True):
        for program, same in zip(found.programs, known["programs"], strict=True):
            assert (program.name, program.floor_bytes, list(program.notes)) == (
                same["name"], same["floor_bytes"], same["reasons"],
            )  # fmt: skip
            schedules = {each.kind: each for each in program.schedules}
            for schedule in same["schedules"]:
                mine = schedules.pop(schedule["kind"])
                assert (mine.bytes, mine.reason) == (schedule["bytes"], schedule["reason"])
                assert [k.bytes for k in mine.kernels] == [k["bytes"] for k in schedule["kernels"]]
            assert set(schedules) <= {"epilogue"}


def test_an_epilogue_does_not_read_the_product() -> None:
    forward = report("gemm_multiply_leakyrelu_split").variants[0].programs[0]
    assert forward.taken == "epilogue"
    assert forward.schedule.bytes == MATRIX + VECTOR and forward.floor_bytes == 2 * MATRIX + VECTOR
    (kernel,) = forward.schedule.kernels
    assert [each.name for each in (*kernel.reads, *kernel.writes)] == ["gemm_bias", "y"]
    variant = report("gemm_multiply_leakyrelu_split").variants[0]
    # The first operator's operand and result, and the second one's operand, lie nowhere.
    assert [each.forward.saved_bytes for each in variant.operators] == [0, 2 * MATRIX, MATRIX]
    assert variant.totals[0].besides_bytes == VECTOR


def test_at_one_size_launchers_choose(emulation_cache: Path) -> None:
    plan = committed("matmul_bn_bias_div_swish")
    found = build(plan, Question(rows=10_000_000, dtype="bf16"), emulation_cache)
    assert found.chosen and found.sizes["batch"] == 10_000_000 and found.dtype == "bfloat16"
    forward = found.variants[0].programs[0]
    assert forward.taken == "two_pass"
    runs = {each.kind: (each.runs, each.decision) for each in forward.schedules}
    assert runs["column"] == (False, "no tile of columns fits shared memory")
    assert runs["two_pass"][0] is True and forward.launches
    # In 16 bits: the product is read, then it is read again and the result written.
    matrix = 2 * 10_000_000 * CHANNELS
    assert 3 * matrix < forward.schedule.bytes < 3.001 * matrix
    assert found.variants[0].totals[0].fused_bytes == forward.schedule.bytes
