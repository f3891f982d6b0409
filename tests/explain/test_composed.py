"""What commands say of a module of several regions, and of one of its regions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fusegen.cli import main

SPEC = Path(__file__).resolve().parents[2] / "specs" / "transformer_mlp_prenorm.yaml"
RESULTS = """\
fusegen: 1
name: add_norm
dims: {batch: 16, width: 32}
arguments: {width: {type: dim}}
inputs: {x: [batch, width], y: [batch, width]}
chain:
  - {op: add, input: y, save: total}
  - {op: layer_norm, name: norm}
outputs: [result, total]
"""


def said(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments)])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_regions_in_order_then_the_plan_of_each(capsys) -> None:
    code, out, _ = said(capsys, "plan", SPEC)
    assert code == 0
    assert "    up    linear, gelu: norm_result -> up_result  (transformer_mlp_prenorm_up)\n" in out
    starts = [out.index(f"\ntransformer_mlp_prenorm_{name} at tokens") for name in ("norm", "up", "down")]
    assert starts == sorted(starts)


def test_as_json(capsys) -> None:
    code, out, _ = said(capsys, "plan", SPEC, "--format", "json")
    found = json.loads(out)
    assert code == 0 and [each["name"] for each in found["regions"]] == ["norm", "up", "down"]
    assert set(found["plans"]) == {each["package"] for each in found["regions"]}
    code, out, _ = said(capsys, "plan", SPEC, "--json")
    assert code == 0 and out == (SPEC.parents[1] / "generated" / SPEC.stem / "plan.json").read_text()


def test_a_page_is_of_one_region(capsys) -> None:
    code, _, err = said(capsys, "plan", SPEC, "--format", "svg")
    assert code == 2 and "there is no page of transformer_mlp_prenorm: it has several regions (norm, up, down)" in err
    assert "choose one by --region" in err
    code, out, _ = said(capsys, "plan", SPEC, "--format", "svg", "--region", "up")
    assert code == 0 and out.startswith("<svg") and "transformer_mlp_prenorm_up" in out
    code, out, _ = said(capsys, "plan", SPEC, "--json", "--region", "down")
    assert code == 0 and out == (SPEC.parents[1] / "generated" / f"{SPEC.stem}_down" / "plan.json").read_text()


@pytest.mark.parametrize(
    ("spec", "name", "reason"),
    [
        (SPEC, "gelu", "no kernels are in a region 'gelu': they are in norm, up, down"),
        (SPEC.with_name("geglu.yaml"), "proj", "regions are those of one spec that has several"),
        (SPEC.parent, "up", "regions are those of one spec that has several"),
    ],
)
def test_regions_that_are_not_there(capsys, spec: Path, name: str, reason: str) -> None:
    code, _, err = said(capsys, "plan", spec, "--region", name)
    assert code == 2 and reason in " ".join(err.replace("│", " ").split())


def test_a_plan_of_several_results(capsys, tmp_path: Path) -> None:
    """The backward pass reads a result, which costs nothing; the inputs have one gradient, which is written once."""
    (tmp_path / "add_norm.yaml").write_text(RESULTS)
    code, out, _ = said(capsys, "plan", tmp_path / "add_norm.yaml", "--format", "json")
    assert code == 0
    (variant,) = json.loads(out)["variants"]
    assert ("total", 0) in [(each["name"], each["bytes"]) for each in variant["saved"]]
    backward = variant["programs"][1]
    assert {"grad_x", "grad_y"} <= set(backward["writes"])
    rows = [kernel for kernel in backward["schedules"][0]["kernels"] if kernel["kind"] == "row"]
    assert [[each["name"] for each in kernel["writes"] if each["shape"] == [16, 32]] for kernel in rows] == [["grad_x"]]
    # Both gradients that come, the sum, and one gradient; the norm's weight, and the statistics of each row.
    assert backward["floor_bytes"] == 4 * (4 * 16 * 32 + 3 * 32 + 2 * 16)


def test_a_wheel_has_the_packages_of_the_regions() -> None:
    from fusegen.plan.load import planned_files
    from fusegen.render.package import render_all
    from fusegen.wheel.stage import build_requests, shipped_paths

    plans = planned_files([SPEC])
    shipped = shipped_paths(plans, render_all(plans))
    regions = [f"{SPEC.stem}_{name}" for name in ("norm", "up", "down")]
    assert {f"{name}/_C.so" for name in regions} < set(shipped) and f"{SPEC.stem}/_C.so" not in shipped
    assert {f"{name}/__init__.py" for name in (SPEC.stem, *regions)} < set(shipped)
    assert [request.package.name for request in build_requests(plans, Path("there"), None)] == regions
