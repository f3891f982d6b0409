"""Colours of pages and pictures, for light and for dark surroundings."""

from __future__ import annotations

LIGHT = {
    "paper": "#ffffff", "text": "#1f2328", "muted": "#59636e", "line": "#818b98", "link": "#0969da",
    "operator": "#f6f8fa", "operator-edge": "#818b98", "bar": "#9a6700",
    "kernel": "#e3f2ff", "kernel-edge": "#0969da", "kernel-bar": "#0969da",
    "product": "#ffffff", "product-edge": "#818b98", "good": "#1a7f37",
}  # fmt: skip
DARK = {
    "paper": "#0d1117", "text": "#f0f6fc", "muted": "#9198a1", "line": "#656c76", "link": "#4493f8",
    "operator": "#151b23", "operator-edge": "#656c76", "bar": "#d29922",
    "kernel": "#12253d", "kernel-edge": "#4493f8", "kernel-bar": "#4493f8",
    "product": "#0d1117", "product-edge": "#656c76", "good": "#3fb950",
}  # fmt: skip


_KINDS = ("operator", "kernel", "product")


def drawing_rules(colours: dict[str, str]) -> list[str]:
    """CSS rules for what a drawing has."""
    fills = {".paper": "paper", ".bar": "bar", ".kernel-bar": "kernel-bar", ".muted": "muted", ".head": "muted"}
    fills |= {".title": "text", ".plain": "text"}
    found = [f"svg {name} {{ fill: {colours[colour]}; }}" for name, colour in fills.items()]
    found += [f"svg .{kind} {{ fill: {colours[kind]}; stroke: {colours[f'{kind}-edge']}; }}" for kind in _KINDS]
    return [*found, f"svg .arrow {{ stroke: {colours['muted']}; }}"]


def page_rules(colours: dict[str, str]) -> str:
    """The same colours as variables, for the rest of a page."""
    return f":root {{ {' '.join(f'--{name}: {colour};' for name, colour in colours.items())} }}"
