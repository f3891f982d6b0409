"""The SVG of a plan: it is valid alone, no text leaves its box, and the README's is up to date."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fusegen.explain.boxes import COLUMNS, columns_of, stacks, wrap
from fusegen.explain.drawing import CHARACTER, PADDING, Drawing, Rectangle
from fusegen.explain.formats import write
from fusegen.explain.picture import drawing_of, picture
from tests.explain.reports import HARD, LONG, NAMES, report

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"
SHOWN = "gemm_bias_hardtanh_mish_groupnorm"


@pytest.mark.parametrize("name", [*NAMES, SHOWN])
def test_it_is_valid_alone(name: str) -> None:
    text = picture(report(name))
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg" and {each.tag for each in root.iter()} <= {
        f"{SVG}{tag}" for tag in ("svg", "title", "style", "rect", "path", "text")
    }
    width, height = (float(root.get(key)) for key in ("width", "height"))
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    (background, *_) = root.iter(f"{SVG}rect")
    assert background.get("class") == "paper" and background.get("width") == background.get("height") == "100%"
    style = root.find(f"{SVG}style").text
    assert "prefers-color-scheme: dark" in style and "url(" not in style and "http" not in text.replace(SVG[1:-1], "")
    for each in root.iter(f"{SVG}text"):
        assert 0 <= float(each.get("x")) <= width and 0 < float(each.get("y")) <= height


def boxes(drawing: Drawing) -> list[Rectangle]:
    return [each for each in drawing.rectangles if "bar" not in each.style]


@pytest.mark.parametrize("name", [*NAMES, SHOWN])
def test_no_text_leaves_its_box_and_no_box_its_picture(name: str) -> None:
    drawing = drawing_of(report(name))
    for box in drawing.rectangles:
        assert box.x >= 0 and box.x + box.width <= drawing.width and box.y + box.height <= drawing.height
    framed = 0
    for text in drawing.texts:
        right = text.x + columns_of(text.text) * CHARACTER
        assert right <= drawing.width
        around = [b for b in boxes(drawing) if b.y <= text.y <= b.y + b.height and b.x <= text.x <= b.x + b.width]
        for box in around:
            framed += 1
            assert right <= box.x + box.width - PADDING / 2, text.text
            assert box.y + 10 <= text.y <= box.y + box.height - 3, text.text
    assert framed > len(boxes(drawing))


@pytest.mark.parametrize("name", NAMES)
def test_boxes_do_not_overlap(name: str) -> None:
    found = boxes(drawing_of(report(name)))
    for index, one in enumerate(found):
        for other in found[index + 1 :]:
            apart = one.x + one.width <= other.x or other.x + other.width <= one.x
            assert apart or one.y + one.height < other.y or other.y + other.height < one.y


def test_every_operator_and_kernel_has_its_box() -> None:
    """Backward, the last operator is the first."""
    found = report("matmul_bn_bias_div_swish")
    forward, backward = found.variants[0].programs

    def titles(program, side: int) -> list[str]:
        return [box.lines[0].text.partition(" ")[0] for box in stacks(found, found.variants[0], program)[side].boxes]

    assert titles(forward, 0) == ["matmul:", "batch_norm", "add", "div", "silu"]
    assert titles(backward, 0) == ["silu", "div", "add", "batch_norm", "linear", "matmul:"]
    assert titles(forward, 1) == ["matmul:", "train_forward_column"]
    assert titles(backward, 1) == ["train_backward_column", "train_backward_scalar_reduction", "matmul:"]


def test_a_product_and_its_epilogue_are_one_box() -> None:
    found = report("gemm_multiply_leakyrelu_split")
    forward = found.variants[0].programs[0]
    _, fused = stacks(found, found.variants[0], forward)
    assert [line.text for line in fused.caption] == [
        "fusegen, schedule epilogue", "in the product's kernel, 33.6 MB, 11.2 us",
    ]  # fmt: skip
    (box,) = fused.boxes
    said = [line.text for line in box.lines]
    assert said[:2] == ["gemm: product", "by pieces of fp16"] and said[-1] == "33.6 MB, 11.2 us"
    assert "reads  gemm_bias" in said and "writes y" in said and box.kind == "kernel"


def test_bars_are_as_long_as_bytes_are_many() -> None:
    found = report("matmul_bn_bias_div_swish")
    eager, fused = stacks(found, found.variants[0], found.variants[0].programs[0])
    shares = [box.share for box in (*eager.boxes, *fused.boxes) if box.share is not None]
    moved = [each.forward.bytes for each in found.variants[0].operators if each.forward.bytes]
    moved.append(found.variants[0].programs[0].schedule.bytes)
    assert len(moved) == 5 and shares == [each / max(moved) for each in moved]


def test_lines_are_broken_where_they_have_to_be() -> None:
    assert wrap("one two three", 7) == ["one two", "three"]
    assert wrap("first_second_third", 8) == ["first_", "second_", "third"]
    assert wrap("a 0123456789", 5) == ["a", "01234", "56789"]
    assert wrap("", 5) == [""]
    assert columns_of("漢字a") == 5 and wrap("漢字漢字", 5) == ["漢字", "漢字"]
    for text in (LONG, HARD, f"add (input: {HARD}, value: {LONG})"):
        lines = wrap(text)
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
        assert max(map(columns_of, lines)) <= COLUMNS


def test_the_picture_of_the_readme_is_up_to_date() -> None:
    path = f"docs/images/{SHOWN}.svg"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"!\[[^]]+\]\({path}\)", readme)
    again = f"write it again: fusegen plan specs/{SHOWN}.yaml --format svg > {path}"
    assert (ROOT / path).read_text(encoding="utf-8") == write(report(SHOWN), "svg"), again
