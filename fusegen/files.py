"""What is read from outside fusegen, and how every file is written: beside its place, and renamed when it is whole.

So a run that is killed, a full disk or a loss of power leaves the former file. Inputs are never outputs.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from fusegen.errors import Diagnostic, SpecError

try:
    import fcntl
except ImportError:  # not on Linux, where nothing is compiled either
    fcntl = None  # type: ignore[assignment]

_PREFIX, _SUFFIX = ".fusegen-", ".tmp"  # of what is being written; the output directory's .gitignore has it


def parse_json(data: bytes) -> Any:
    """The value of JSON from outside. Raises ValueError with the reason, whatever the bytes are."""
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # half a surrogate pair can be neither shown nor written
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:  # also of what is no UTF-8, and of numbers of too many digits
        raise ValueError("it is not JSON") from None
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def refuse_output(path: Path, *, inputs: Iterable[Path] = (), overwrite: bool = False) -> None:
    """Raises SpecError where a file of that path would replace one of the inputs, by whatever name, or a file that is
    there and is not to be overwritten. For a command that works long before it writes."""
    with writing(path):
        if _is_special(path) or not os.path.exists(path):
            return
        for each in inputs:
            if os.path.exists(each) and os.path.samefile(path, each):
                message = f"{path} is read by this command, so it cannot be written"
                raise SpecError([Diagnostic("FG502", message, hint="choose another name")])
        if not overwrite:
            raise SpecError([Diagnostic("FG502", f"{path} is there already", hint="--overwrite replaces it")])


def write_output(path: Path, data: str | bytes, *, inputs: Iterable[Path] = (), overwrite: bool = False) -> None:
    """Writes a file that a command was told to write. Raises SpecError as refuse_output does, and where it cannot be
    written."""
    refuse_output(path, inputs=inputs, overwrite=overwrite)
    with writing(path):
        write(path, data)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the system refuses meanwhile is a SpecError: the file cannot be written."""
    try:
        yield
    except OSError as error:
        raise SpecError([Diagnostic("FG502", f"cannot write {path}: {error.strerror or error}")]) from error


def write(path: Path, data: str | bytes, mode: int | None = None) -> None:
    """Writes bytes, or text in UTF-8, in one step. mode: the file's permissions, whatever the umask. Raises OSError,
    and then what was there stays."""
    content = data.encode("utf-8") if isinstance(data, str) else data
    if _is_special(path):
        path.write_bytes(content)
        return
    with replacing(path) as part:
        part.write_bytes(content)
        if mode is not None:
            part.chmod(mode)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write what becomes the file `path` when the body ends well.

    A link stays, and what it leads to is replaced. The body writes nothing else into that directory. Raises OSError.
    """
    path = Path(os.path.realpath(path))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
    with _alone(path.parent):
        part = path.with_name(f"{_PREFIX}{os.urandom(8).hex()}{_SUFFIX}")
        try:
            os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            if path.exists():
                shutil.copymode(path, part)
            yield part
            with part.open("rb") as file:
                os.fsync(file.fileno())  # else the name may be on the disk before the content is
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def remove_left_over(directory: Path) -> None:
    """Removes what writers that were killed have left in a directory."""
    if directory.is_dir():
        with _alone(directory):
            pass


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """While nobody else writes into a directory, in which nothing is left over then.

    The lock is the system's on the directory itself: it leaves no file, and ends with the process.
    """
    handle = None
    try:
        if fcntl is not None:
            handle = os.open(directory, os.O_RDONLY)
            fcntl.flock(handle, fcntl.LOCK_EX)
            for left in directory.glob(f"{_PREFIX}*{_SUFFIX}"):
                left.unlink(missing_ok=True)
    except OSError:
        pass  # a file system without such locks, or a directory that may not be listed: what is left over stays
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _is_special(path: Path) -> bool:
    """Whether it is there and neither a file nor a directory, such as /dev/stdout: nothing could take its place."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
