"""Compiled templates are kept between runs, and never change what is rendered."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jinja2 import Environment

from fusegen.render.text import environment as module
from fusegen.render.text.environment import environment_of


@pytest.fixture
def templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with one template, of a user whose Python keeps compiled modules beside their sources."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    (tmp_path / "a.j2").write_text("{{ x }} one")
    return tmp_path


def rendered(templates: Path) -> str:
    """As by a process of its own: nothing is left of an environment from before."""
    return environment_of(templates).get_template("a.j2").render(x=1)


def kept(templates: Path) -> list[Path]:
    return [path for path in templates.rglob("*") if path.is_file() and path.name != "a.j2"]


def test_a_template_is_compiled_once(templates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rendered(templates) == "1 one"

    def compile_again(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(Environment, "compile", compile_again)
    assert rendered(templates) == "1 one"


def test_another_source_is_compiled(templates: Path) -> None:
    rendered(templates)
    (templates / "a.j2").write_text("{{ x }} two")
    assert rendered(templates) == "1 two"
    assert len(kept(templates)) == 1  # in place of the old one


def test_another_jinja2_compiles_for_itself(templates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered(templates)
    monkeypatch.setattr(module.jinja2, "__version__", "another")
    compiled = []
    compile_ = Environment.compile
    monkeypatch.setattr(Environment, "compile", lambda *args, **kw: compiled.append(args) or compile_(*args, **kw))
    assert rendered(templates) == "1 one"
    assert compiled


def test_what_is_broken_is_made_again(templates: Path) -> None:
    rendered(templates)
    (path,) = kept(templates)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert rendered(templates) == "1 one", length


def test_nothing_is_kept_where_python_keeps_nothing(templates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert rendered(templates) == "1 one"
    assert not kept(templates)


def test_all_users_can_read_it(templates: Path) -> None:
    rendered(templates)
    (path,) = kept(templates)
    assert path.stat().st_mode & 0o777 == 0o644


def test_it_goes_where_python_puts_its_own(templates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(templates / "elsewhere"))
    rendered(templates)
    (path,) = kept(templates)
    assert path.is_relative_to(templates / "elsewhere")


def test_a_directory_that_cannot_be_written(templates: Path) -> None:
    (templates / "__pycache__").write_text("in the way")
    assert rendered(templates) == "1 one"
    assert rendered(templates) == "1 one"
