"""The documents name files, functions, links and commands that there are."""

from __future__ import annotations

import re
import subprocess
import typing
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
import typer

from fusegen import __version__
from fusegen.cli import app, main

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
# Of PyTorch, of who follows a page.
ELSEWHERE = {"derivatives.yaml", "wrong.py", "threshold_backward", "squared_tail.py"}
SUFFIXES = (".py", ".cuh", ".cu", ".cpp", ".h", ".j2", ".csv", ".md", ".yaml", ".toml")
COMMANDS: typing.Any = typer.main.get_command(app)


@pytest.fixture(scope="module")
def files() -> list[Path]:
    """Files and directories of the project, without what only this machine has."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    paths = [Path(name) for name in names if name]
    found = dict.fromkeys(each for path in paths for each in (path, *path.parents) if each.name)
    return [ROOT / path for path in found if (ROOT / path).exists()]


@pytest.fixture(scope="module")
def names(files: list[Path]) -> set[str]:
    """All words of the sources."""
    code = [path for path in files if path.suffix in (".py", ".cuh", ".h", ".cpp", ".j2") and path != Path(__file__)]
    return {word for path in code for word in re.findall(r"\w+", path.read_text(encoding="utf-8", errors="replace"))}


def spans(text: str) -> list[str]:
    """What is set as code within a line."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^```.*?^```", "", text))


def missing_paths(text: str, files: Collection[Path]) -> list[str]:
    """Paths may begin at any directory, and be patterns. What is in <> depends on the chain."""
    found = [span.rstrip("/") for span in spans(text) if re.fullmatch(r"[\w.*-]*(/[\w.*-]+)+/?", span)]
    found += [span for span in spans(text) if re.fullmatch(r"[\w*-][\w.*-]*", span) and span.endswith(SUFFIXES)]
    return [path for path in found if path not in ELSEWHERE and not any(file.match(path) for file in files)]


def missing_functions(text: str, names: Collection[str]) -> list[str]:
    """Functions, as `row_shape()`, `element<kPass>(x)` or `Graph.claim()`."""
    found = [match[1] for span in spans(text) if (match := re.match(r"(?:\w+\.)*(\w+)(?:<[\w, ]+>)?\(", span))]
    return [name for name in found if name not in ELSEWHERE and name not in names and not name.endswith("_")]


def missing_links(page: Path, text: str) -> list[str]:
    """Links to files and headings."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target))):
            found.append(link)
    return found


def anchors(page: Path) -> set[str]:
    """Those of a page's headings, as GitHub makes them."""
    headings = re.findall(r"(?m)^#+ (.*)$", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(text: str) -> Iterator[str]:
    """The command lines of fusegen, in a line, in a block of a shell, or indented."""
    blocks = re.findall(r"(?ms)^```sh\n(.*?)^```", text) + re.findall(r"(?m)^    (fusegen .*)$", text)
    for line in (*spans(text), *(line for block in blocks for line in block.splitlines())):
        if line.startswith("fusegen "):
            yield line.partition("#")[0].removeprefix("fusegen ")


def unknown_commands(text: str) -> list[str]:
    """Commands and options that there are not."""
    found = []
    for line in commands(text):
        words = line.split()
        command = COMMANDS if words[0].startswith("-") else COMMANDS.commands.get(words[0])
        options = {word for word in words if re.fullmatch(r"--[a-z-]+", word)}
        if command is None or options - {o for p in command.params for o in (*p.opts, *p.secondary_opts)}:
            found.append(line)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path, files: list[Path], names: set[str]) -> None:
    text = page.read_text(encoding="utf-8")
    assert missing_paths(text, files) == []
    assert missing_functions(text, names) == []
    assert missing_links(page, text) == []
    assert unknown_commands(text) == []


def test_what_is_missing_is_seen(files: list[Path], names: set[str]) -> None:
    assert missing_paths("`kernels/row.cuh` `plan/row.cuh` `rows.cuh` `*_work.cuh` `tests/specs`", files) == [
        "plan/row.cuh", "tests/specs", "rows.cuh",
    ]  # fmt: skip
    assert missing_functions("`row_shape()` `no_shape" + "()` `element<kPass>(x)`", names) == ["no_" + "shape"]
    assert missing_links(ROOT / "README.md", "[a](docs/no.md) [b](docs/spec.md#top-level) [c](#no)") == [
        "docs/no.md", "#no",
    ]  # fmt: skip
    text = "`fusegen plan S --rows 1`, `fusegen plan --lines`\n```sh\nfusegen plot\n```\n    fusegen bench --specs\n"
    assert unknown_commands(text) == ["plan --lines", "plot", "bench --specs"]


def test_the_first_pages() -> None:
    """The README is short, and the list of pages has all of them."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
    listed = re.findall(r"\| \[(\w+\.md)\]", (ROOT / "docs" / "README.md").read_text(encoding="utf-8"))
    assert sorted([*listed, "README.md"]) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def test_the_changelog_is_by_version() -> None:
    """The newest first, with its day, and each line in a group; the newest is that of the package."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    _, *sections = re.split(r"(?m)^## ", text)
    sections = [each for each in sections if not each.startswith("Unreleased\n")]
    heads = [re.match(r"(\d+)\.(\d+)\.(\d+) - (\d{4}-\d\d-\d\d)(, not released)?\n", each) for each in sections]
    assert None not in heads
    found = [(tuple(map(int, head.groups()[:3])), head[4]) for head in heads if head]
    assert found == sorted(found, reverse=True)
    assert ".".join(map(str, found[0][0])) == __version__
    for section in text.split("\n## ")[1:]:
        begin, *groups = section.split("\n### ")
        assert begin.count("\n") <= 1 and "\n- " not in begin
        kinds = [group.partition("\n")[0] for group in groups]
        assert kinds == [kind for kind in ("Added", "Changed", "Fixed") if kind in kinds] != []


@pytest.mark.torch
def test_what_the_readme_shows_of_a_model(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    (shown,) = re.findall(r"(?ms)^```text\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"))
    command, _, output = shown.partition("\n")
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit):
        main(command.removeprefix("$ fusegen ").split())
    assert capsys.readouterr().out == output


@pytest.mark.torch
def test_the_script_for_one_size(emulation_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    text = (ROOT / "docs" / "debugging.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"(?ms)^```python\n(.*?)^```", text)
    assert 'Path("build/emulated")' in script
    exec(script.replace('Path("build/emulated")', repr(str(emulation_cache))), {})
    assert re.search(r"(?m)^y: off by [\d.e-]+, of ", capsys.readouterr().out)
