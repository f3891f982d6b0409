"""What mkdocs has to know of this repository, as hooks.

The site has the paths of the repository, so links of pages are right as they are: README.md is its front page, and
files that pages link to, such as specs and tables, are copied. docs/README.md is the navigation.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from pathspec.gitignore import GitIgnoreSpec

ROOT = Path(__file__).resolve().parents[1]
# Pages, and what these link to.
_PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md")
_FILES = ("LICENSE", "NOTICE", "docs/images", "specs", "examples", "benchmarks/results", "tests/chains")
_LINK = re.compile(r"\]\(([^)\s#:]+)\)")


def on_config(config: Any) -> Any:
    """The navigation, and anchors as GitHub has them."""
    config.nav = [{"fusegen": "README.md"}, *_sections(), {"Contributing": "CONTRIBUTING.md"}]
    config.nav += [{"All pages": "docs/README.md"}, {"Changelog": "CHANGELOG.md"}]
    config.mdx_configs["toc"] = {"slugify": _anchor}
    return config


def on_files(files: Files, config: Any) -> Files:
    """Pages and files by their paths in the repository."""
    pages = [path for pattern in _PAGES for path in sorted(ROOT.glob(pattern))]
    copied = [path for name in _FILES for path in (ROOT / name, *sorted((ROOT / name).rglob("*")))]
    copied = [path for path in copied if path.is_file() and path.parent.name != "__pycache__"]
    made = [each for each in files if not (ROOT / "docs" / each.src_uri).is_file()]  # of the theme
    for path in (*pages, *(path for path in copied if path.suffix != ".md")):
        made.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    folders = {folder for path in copied for folder in path.relative_to(ROOT).parents if folder != Path()}
    for folder in sorted(folders - {Path("docs"), Path("docs/images")}):
        made.append(File.generated(config, _list_of(folder), content=_listing(folder, copied)))
    config.not_in_nav = GitIgnoreSpec.from_lines([f"/{_list_of(folder)}" for folder in folders])
    return Files(made)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to directories, as to the lists of their files."""

    def linked(found: re.Match[str]) -> str:
        target = (ROOT / page.file.src_uri).parent / found[1]
        return f"]({found[1].rstrip('/')}/index.md)" if target.is_dir() else found[0]

    return _LINK.sub(linked, markdown)


def _sections() -> list[dict[str, list[str]]]:
    """Of docs/README.md each table, by the line in front of it."""
    text = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.endswith(":"):
            title = line.rstrip(":")
        elif row := re.match(r"\| \[\w+\.md\]\((\w+\.md)\)", line):
            found.setdefault(title, []).append(f"docs/{row[1]}")
    return [{title: pages} for title, pages in found.items()]


def _anchor(heading: str, _separator: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _list_of(folder: Path) -> str:
    return f"{folder.as_posix()}/index.md"


def _listing(folder: Path, copied: list[Path]) -> str:
    inside = {path.relative_to(ROOT / folder).parts[0] for path in copied if ROOT / folder in path.parents}
    lines = [f"- [{name}]({name})" for name in sorted(inside)]
    return "\n".join([f"# {folder.as_posix()}", "", *lines, ""])
