"""The HTML of a plan: it is well formed, stands alone, and says all that the plan says."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fusegen.explain.build import build
from fusegen.explain.choices import Question
from fusegen.explain.colours import DARK, LIGHT
from fusegen.explain.page import page
from tests.explain.reports import ABOUT, HARD, LONG, NAMES, report
from tests.plan.planning import committed

VOID = {"meta", "rect", "path"}


class Reader(HTMLParser):
    """Elements with their attributes, and the text outside of styles. Raises AssertionError where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None], tuple[str, ...]]] = []
        self.parts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes), tuple(self.open)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes), tuple(self.open)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.parts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.parts).split())


@pytest.mark.parametrize("name", NAMES)
def test_it_is_well_formed_and_stands_alone(name: str) -> None:
    text = page((None, [report(name)]))
    found = Reader(text)
    assert text.startswith("<!DOCTYPE html>") and text.endswith("</html>\n")
    tags = {tag for tag, _, _ in found.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "form"}
    named = {key for _, attributes, _ in found.elements for key in attributes}
    assert not named & {"href", "src", "xlink:href", "srcset", "action", "id"}
    assert not [key for key in named if key.startswith("on")]
    assert not re.search(r"url\(|@import|http|//", text, re.IGNORECASE)
    meta = [attributes for tag, attributes, _ in found.elements if tag == "meta"]
    assert {"charset": "utf-8"} in meta and any("width=device-width" in str(each) for each in meta)


@pytest.mark.parametrize("name", NAMES)
def test_everything_that_the_plan_says_is_there(name: str) -> None:
    found, text = report(name), Reader(page((None, [report(name)]))).text.lower()
    said = [found.name, found.device.name, *found.chain, *found.estimates]
    for variant in found.variants:
        said += [variant.name, *(each.name for each in variant.saved), *(each.reason for each in variant.saved)]
        for program in variant.programs:
            said += [program.name, *program.notes]
            for schedule in program.schedules:
                said += [schedule.kind, schedule.reason]
                for kernel in schedule.kernels:
                    said += [kernel.name, kernel.purpose, *(each.name for each in (*kernel.reads, *kernel.writes))]
    said += [line for tuning in found.tuning for line in (tuning.measured_on, *tuning.ranges)]
    assert not [each for each in said if " ".join(each.lower().split()) not in text]


def test_what_comes_from_a_spec_is_escaped() -> None:
    text = page((None, [report("long_names")]))
    assert ABOUT in " ".join(Reader(text).parts)
    assert "</title> {{" not in text and "&lt;/title&gt; {{ 7 * 7 }}" in text
    assert LONG in text and HARD in text


def test_a_long_plan_is_folded() -> None:
    """All variants but the first, and the schedules that are not taken."""
    found = Reader(page((None, [report("matmul_bn_bias_div_swish")])))
    opened = [attributes for tag, attributes, _ in found.elements if tag == "details" and "open" in attributes]
    programs = [program for variant in report("matmul_bn_bias_div_swish").variants for program in variant.programs]
    assert len(opened) == len(programs) == 4
    inside = [where.count("details") for tag, _, where in found.elements if tag == "section"]
    assert inside == [0, 0, 1, 1]


def test_dark_and_light_colours_are_both_there() -> None:
    text = page((None, [report("matmul_bn_bias_div_swish")]))
    light, _, dark = text.partition("@media (prefers-color-scheme: dark)")
    assert f"--paper: {LIGHT['paper']};" in light and f"--paper: {DARK['paper']};" in dark
    assert LIGHT.keys() == DARK.keys()


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_has_the_contrast_that_reading_takes(colours: dict[str, str]) -> None:
    """At least 4.5 to 1, which WCAG asks of text, and 3 to 1 of edges and bars."""

    def contrast(one: str, other: str) -> float:
        dark, light = sorted((luminance(colours[one]), luminance(colours[other])))
        return (light + 0.05) / (dark + 0.05)

    grounds = ("paper", "operator", "kernel", "product")
    for ground in grounds:
        assert min(contrast(text, ground) for text in ("text", "muted")) > 4.5
    assert contrast("good", "paper") > 4.5
    assert min(contrast(edge, "paper") for edge in ("operator-edge", "kernel-edge", "product-edge", "line")) > 3
    assert contrast("bar", "operator") > 3 and contrast("kernel-bar", "kernel") > 3


def test_what_launchers_chose_and_rejected(emulation_cache: Path) -> None:
    found = build(committed("matmul_bn_bias_div_swish"), Question(rows=1024), emulation_cache)
    text = Reader(page((None, [found]))).text
    assert "column runs" in text and "The launcher takes it: tiles of columns fit shared memory (estimate" in text
    assert "two_pass not taken" in text and "The launcher does not take it: estimated slower (estimate" in text
    # What was measured near this size goes first.
    assert "The launcher takes it: measured to be fastest near this size." in text
    assert "The launcher does not take it: another schedule was measured to be faster near this size." in text
    assert "column kernel, passes 0 to 1: grid 256x1x1, block 8x64x1, 135168 bytes shared" in text
