"""The messages on the page are those of the sources."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "troubleshooting.md"
# CUDA's own, which launchers repeat.
OF_CUDA = {
    "CUDA driver version is insufficient for CUDA runtime version",
    "no kernel image is available for execution on the device",
    "the provided PTX was compiled with an unsupported toolchain",
}
SPAN = re.compile(r"(?m)^\| `([^`]+)` \|")


@functools.cache
def sources() -> str:
    """The text of all sources, with strings that go on in the next line in one."""
    files = [each for folder in ("fusegen", "templates") for each in (ROOT / folder).rglob("*")]
    texts = [each.read_text(encoding="utf-8") for each in files if each.suffix in (".py", ".h", ".j2")]
    return re.sub(r'"\s*\n\s*f?"', "", "\n".join(texts))


def unknown(message: str) -> list[str]:
    """The parts between `...` that no source has."""
    parts = [each.strip(" ") for each in message.split("...")]
    return [each for each in parts if len(each) > 1 and each not in sources()]


MESSAGES = [message for message in SPAN.findall(PAGE.read_text(encoding="utf-8")) if message not in OF_CUDA]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_one_of_ours(message: str) -> None:
    assert unknown(message) == []


def test_all_of_them_are_read() -> None:
    assert len(MESSAGES) > 30 and unknown("qq none ... message of ours") == ["qq none", "message of ours"]
    assert len(SPAN.findall(PAGE.read_text(encoding="utf-8"))) == len(MESSAGES) + len(OF_CUDA)
