"""The page as a browser shows it: on a phone and on a screen, light and dark. Skipped where there is no Chromium."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fusegen.explain.colours import DARK, LIGHT
from fusegen.explain.page import page
from tests.explain.reports import report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
WIDTHS = (360, 1280)

# Everything is measured twice: as the page is shown first, and with all that is folded opened.
MEASURE = """
const found = [];
for (const frame of document.querySelectorAll("iframe")) {
  const page = frame.contentDocument, root = page.documentElement;
  const view = (opened) => ({
    width: frame.clientWidth, opened, scrolled: root.scrollWidth, height: root.scrollHeight,
    paper: frame.contentWindow.getComputedStyle(page.body).backgroundColor,
    ink: frame.contentWindow.getComputedStyle(page.querySelector("svg .title")).fill,
    drawings: [...page.querySelectorAll("svg")].filter((svg) => svg.checkVisibility()).map((svg) => {
      const box = svg.getBoundingClientRect(), right = svg.viewBox.baseVal.width - 6;
      const scale = box.width / svg.viewBox.baseVal.width;
      return { scale, left: box.left, right: box.right,
        over: [...svg.querySelectorAll("text")].filter((text) => {
          const drawn = text.getBBox();
          return drawn.x + drawn.width > right;
        }).map((text) => text.textContent) };
    }),
    hidden: [...page.querySelectorAll("section")].filter((each) => !each.checkVisibility()).length,
  });
  found.push(view(false));
  page.querySelectorAll("details").forEach((each) => { each.open = true; });
  found.push(view(true));
}
document.body.textContent = "measured " + JSON.stringify(found) + " end";
"""


def shown(pages: list[str], directory: Path, *, dark: bool) -> list[dict]:
    """What a browser measures of pages, each at both widths."""
    frames = "".join(
        f'<iframe style="border:0; width:{width}px; height:800px" srcdoc="{html.escape(page)}"></iframe>'
        for page in pages
        for width in WIDTHS
    )
    path = directory / "frames.html"
    script = f"<script>window.onload = () => {{ {MEASURE} }};</script>"
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{frames}{script}", encoding="utf-8")
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", f"--user-data-dir={directory / 'profile'}",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    measured = re.search(r"measured (\[.*\]) end", done.stdout, re.DOTALL)
    assert measured, done.stderr[-2000:]
    return json.loads(html.unescape(measured[1]))


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"


@pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome is on the PATH")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_page_on_a_phone_and_on_a_screen(tmp_path: Path, dark: bool) -> None:
    names = ("matmul_bn_bias_div_swish", "long_names")
    found = shown([page((None, [report(name)])) for name in names], tmp_path, dark=dark)
    assert [(each["width"], each["opened"]) for each in found] == [
        (width, opened) for _ in names for width in WIDTHS for opened in (False, True)
    ]
    colours = DARK if dark else LIGHT
    for view in found:
        assert view["scrolled"] == view["width"], "nothing to scroll sideways"
        assert (view["paper"], view["ink"]) == (rgb(colours["paper"]), rgb(colours["text"]))
        assert view["hidden"] == (0 if view["opened"] else 2), "the second variant is folded"
        assert len(view["drawings"]) == (8 if view["opened"] else 4)
        for drawing in view["drawings"]:
            assert not drawing["over"], "text that leaves its box"
            assert drawing["scale"] > 0.9, "text that is too small to read"
            assert drawing["left"] >= 0 and drawing["right"] <= view["width"]
    assert all(first["height"] < then["height"] for first, then in zip(found[::2], found[1::2], strict=True))
