"""What commands say of a module of several regions, and of one of its regions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fusegen.cli import main
from fusegen.explain.boxes import columns_of
from fusegen.explain.build import build
from fusegen.explain.choices import device_of
from fusegen.explain.drawing import CHARACTER
from fusegen.explain.model import Report
from fusegen.explain.page import page
from fusegen.explain.picture import drawing_of, drawing_of_regions
from fusegen.explain.whole import Whole, whole_of
from fusegen.explain.wording import size
from fusegen.plan.load import planned_file, planned_files
from tests.explain.test_page import Reader

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
ALONE = """\
fusegen: 1
name: alone
dims: {batch: 16, width: 32, hidden: 64}
arguments: {width: {type: dim}, hidden: {type: dim}}
inputs: {x: [batch, width]}
chain:
  - {op: linear, name: first, out_features: hidden, bias: false}
  - {op: linear, name: second, out_features: width}
  - {op: gelu}
"""


def said(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments)])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_regions_in_order_then_the_plan_of_each(capsys) -> None:
    code, out, _ = said(capsys, "plan", "--full", SPEC)
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


@pytest.fixture(scope="module")
def regions() -> tuple[Whole, list[Report]]:
    (planned,) = planned_files([SPEC])
    reports = [build(plan) for plan in planned.plans]
    return whole_of(planned, reports, device_of(planned.plans[0], None)), reports


def test_the_whole_is_the_sum_of_its_regions(regions) -> None:
    whole, reports = regions
    for index, total in enumerate(whole.totals):
        parts = [report.variants[0].totals[index] for report in reports]
        assert {part.direction for part in parts} == {total.direction}
        for key in ("eager_bytes", "fused_bytes", "besides_bytes", "eager", "fused", "saved_bytes"):
            assert getattr(total, key) == pytest.approx(sum(getattr(part, key) for part in parts)), key
    assert [total.direction for total in whole.totals] == ["forward", "backward"]
    assert whole.after == ", after the products" and not whole.left_out


def test_a_page_of_all_regions(capsys, regions) -> None:
    """The whole's totals, then the regions one under the other, each with all that its own page says."""
    whole, reports = regions
    code, out, _ = said(capsys, "plan", SPEC, "--format", "html")
    assert code == 0 and out.startswith("<!DOCTYPE html>") and out.endswith("</html>\n")
    text, tags = Reader(out).text, [tag for tag, _, _ in Reader(out).elements]
    assert tags.count("article") == 3 and tags.count("main") == tags.count("html") == 1
    places = [text.index(f"{each.direction}, all regions {size(each.fused_bytes)}") for each in whole.totals]
    places += [text.index(f"{each.name} {each.about}") for each in reports]
    assert places == sorted(places)
    for each in reports:
        alone = Reader(page((None, [each]))).text
        assert alone[alone.index(each.about) :] in text


def test_a_page_of_several_specs(capsys) -> None:
    """One under the other, each with all that its own page says."""
    specs = [SPEC.with_name("gemm_add_relu.yaml"), SPEC, SPEC.with_name("geglu.yaml")]
    code, out, _ = said(capsys, "plan", *specs, "--format", "html")
    found, tags = Reader(out), [tag for tag, _, _ in Reader(out).elements]
    assert code == 0 and tags.count("html") == tags.count("main") == 1 and tags.count("article") == 3 + 3
    assert "gemm_add_relu, transformer_mlp_prenorm, geglu: the plan" in found.text
    places = []
    for spec in specs:
        alone = Reader(said(capsys, "plan", spec, "--format", "html")[1]).text.partition(": the plan ")[2]
        places.append(found.text.index(alone))
    assert places == sorted(places)


def test_a_page_is_refused_as_a_whole(capsys) -> None:
    code, out, err = said(
        capsys, "plan", SPEC.with_name("gemm_groupnorm_hardtanh.yaml"), SPEC, "--format=html", "--groups=16"
    )
    assert code == 2 and not out and err


def test_a_picture_of_all_regions(capsys, regions) -> None:
    whole, reports = regions
    code, out, _ = said(capsys, "plan", SPEC, "--format", "svg")
    assert code == 0 and out.startswith("<svg")
    drawing, alone = drawing_of_regions(whole, reports), list(map(drawing_of, reports))
    shown = [text for text in drawing.texts if text.text]
    assert len(ElementTree.fromstring(out).findall(".//{*}text")) == len(shown)
    assert len(drawing.rectangles) == sum(len(each.rectangles) for each in alone)
    assert drawing.width == alone[0].width and drawing.height >= sum(each.height for each in alone)
    assert max(text.y for text in drawing.texts) < drawing.height
    columns = {columns_of(text.text) * CHARACTER + text.x for text in drawing.texts}
    assert max(columns) <= drawing.width
    tops = [next(text.y for text in drawing.texts if text.text.startswith(f"{each.name},")) for each in reports]
    assert tops == sorted(tops) and any("all regions" in text.text and text.y < tops[0] for text in drawing.texts)


def test_of_a_layer_that_pytorch_makes(capsys, tmp_path: Path) -> None:
    """A region without kernels has no bytes: where nobody has measured products, the page says that it is left out."""
    (tmp_path / "alone.yaml").write_text(f"{ALONE}targets: [sm_75]\n")
    assert " hidden 64, without the products:" in said(capsys, "plan", tmp_path / "alone.yaml")[1]
    code, out, err = said(capsys, "plan", tmp_path / "alone.yaml", "--format", "html")
    assert code == 0, err
    text = Reader(out).text
    assert "What PyTorch makes of first is left out" in text and "; with them" not in text
    assert said(capsys, "plan", tmp_path / "alone.yaml", "--format", "svg")[1].startswith("<svg")


def test_the_product_of_such_a_layer_is_in_both_times(tmp_path: Path) -> None:
    """As long as that of the same layer in front of kernels."""
    (tmp_path / "alone.yaml").write_text(re.sub(r"(batch|width|hidden): \d+", r"\1: 4096", ALONE))
    planned = planned_file(tmp_path / "alone.yaml")
    report = build(planned.plans[0])
    whole = whole_of(planned, [report], device_of(planned.plans[0], None))
    assert not whole.left_out and whole.after == ", after the products"
    for total, own in zip(whole.totals, report.variants[0].totals, strict=True):
        assert total.eager_product == total.fused_product == pytest.approx(2 * own.eager_product)


def test_one_region_in_each_format(capsys) -> None:
    code, out, _ = said(capsys, "plan", SPEC, "--format", "svg", "--region", "up")
    assert code == 0 and out.startswith("<svg") and "transformer_mlp_prenorm_up" in out
    code, out, _ = said(capsys, "plan", SPEC, "--json", "--region", "down")
    assert code == 0 and out == (SPEC.parents[1] / "generated" / f"{SPEC.stem}_down" / "plan.json").read_text()


def test_what_is_refused_of_one_prints_nothing_of_others(capsys) -> None:
    code, out, _ = said(capsys, "plan", SPEC.with_name("gemm_groupnorm_hardtanh.yaml"), SPEC, "--groups", "16")
    assert code == 2 and not out


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
    from fusegen.render.package import render_all
    from fusegen.wheel.stage import build_requests, shipped_paths

    plans = planned_files([SPEC])
    shipped = shipped_paths(plans, render_all(plans))
    regions = [f"{SPEC.stem}_{name}" for name in ("norm", "up", "down")]
    assert {f"{name}/_C.so" for name in regions} < set(shipped) and f"{SPEC.stem}/_C.so" not in shipped
    assert {f"{name}/__init__.py" for name in (SPEC.stem, *regions)} < set(shipped)
    assert [request.package.name for request in build_requests(plans, Path("there"), None)] == regions
