"""Which files the arguments of a command mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusegen.errors import SpecError
from fusegen.spec.find import spec_files


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    specs = tmp_path / "specs"
    (specs / "below.yaml").mkdir(parents=True)
    for name in ("b.yaml", "B.yaml", "a.yml", ".a.yaml", ".#b.yaml", "b.yaml~", "notes.txt", "below.yaml/c.yaml"):
        (specs / name).touch()
    return specs


def names(*arguments: str) -> list[str]:
    return [path.as_posix() for path in spec_files(map(Path, arguments))]


def test_a_directory_means_the_specs_in_it_by_name(directory: Path) -> None:
    assert names("specs") == ["specs/B.yaml", "specs/a.yml", "specs/b.yaml"]
    assert names(str(directory)) == [f"{directory}/{name}" for name in ("B.yaml", "a.yml", "b.yaml")]


def test_files_keep_their_order_and_come_once(directory: Path) -> None:
    assert names("specs/b.yaml", "specs/a.yml", "./specs/../specs/b.yaml") == ["specs/b.yaml", "specs/a.yml"]
    assert names("specs/b.yaml", "specs") == ["specs/b.yaml", "specs/B.yaml", "specs/a.yml"]


def test_a_file_is_taken_whatever_it_is_called(directory: Path) -> None:
    assert names("specs/notes.txt", "specs/.a.yaml") == ["specs/notes.txt", "specs/.a.yaml"]


def test_that_a_spec_is_not_there_is_said_where_it_is_read(directory: Path) -> None:
    assert names("specs/absent.yaml") == ["specs/absent.yaml"]


@pytest.mark.parametrize("argument", ["specs/below.yaml/empty", "absent", "absent.txt"])
def test_no_specs(directory: Path, argument: str) -> None:
    (directory / "below.yaml" / "empty").mkdir()
    with pytest.raises(SpecError, match="FG505"):
        spec_files([Path("specs"), Path(argument)])


def test_all_that_is_not_there_is_named(directory: Path) -> None:
    with pytest.raises(SpecError) as caught:
        spec_files([Path("one"), Path("specs"), Path("other")])
    assert [each.message for each in caught.value.diagnostics] == ["one is not there", "other is not there"]
