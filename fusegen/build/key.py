"""The content key of a build: what it is made of, and whether a finished `_C.so` still is that.

The key lies beside the output as `_C.key`. It holds each part by name, so that a rebuild can say what
changed, and the output's own hash, so that a `_C.so` from elsewhere is never taken for ours.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusegen.build.errors import BuildError
from fusegen.build.flags import (
    PARTS,
    contraction_flags,
    cxx_flags,
    link_flags,
    module_flags,
    nvcc_flags,
    part_flags,
)
from fusegen.build.libraries import Libraries
from fusegen.build.toolchain import Toolchain
from fusegen.files import parse_json
from fusegen.paths import EXTENSION, MODULE_SOURCE, SUPPORT
from fusegen.render.files.includes import included_files
from fusegen.render.files.support import library_digests, read_compiled

OUTPUT = f"{EXTENSION}.so"
KEY_FILE = f"{EXTENSION}.key"
CONTRACTION_SOURCE = "contraction/contraction.cu"  # in `support`, for packages whose binding includes the next
CONTRACTION_HEADER = "torch_split.h"
PRODUCT_LAUNCHER = b"FUSEGEN_PRODUCT_LAUNCHER"  # where kernels.cu has one

# nvcc adds these to every command line by itself.
_NVCC_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")


@dataclass(frozen=True)
class Unit:
    """What becomes one object: a source, or one of the parts into which it can be divided."""

    source: Path
    part: str | None = None

    def __str__(self) -> str:
        """For people: `kernels.cu`, `kernels.cu (forward)`."""
        return self.source.name if self.part is None else f"{self.source.name} ({self.part.split('_')[1].lower()})"


@dataclass(frozen=True)
class Inputs:
    """Everything that decides the code of the output. `parts` maps a readable name to a value or a hash."""

    package: Path
    cuda: tuple[Unit, ...]
    cxx: tuple[Unit, ...]
    shared: tuple[Unit, ...]  # whose objects have the same names for packages beside this one: of the Python module,
    # and of the contraction where there is one
    parts: Mapping[str, str]
    files: Mapping[Path, frozenset[str]]  # by the source of a unit: the parts that are it and what it includes
    sources: str  # the digest of what the library is compiled from, which the binding has
    has_product: bool = False  # whether kernels of the package run in a product's epilogue

    @property
    def key(self) -> str:
        return digest_of(self.parts)

    @property
    def units(self) -> tuple[Unit, ...]:
        return (*self.cuda, *self.cxx, *self.shared)

    def object_name(self, unit: Unit) -> str:
        """A name no other content can have: an object of that name may be used again, whatever its age."""
        skipped = {"link flags"}.union(*self.files.values()) - self.files[unit.source]
        # What only others see. nvcc runs the C++ compiler too; bindings include no header of CUDA's or Python's.
        if unit in self.cuda:
            skipped |= {"cxx flags", "module flags", "contraction flags", "torch", "python"}
        elif unit in self.cxx:
            skipped |= {"nvcc", "nvcc flags", "module flags", "contraction flags", "python"}
        else:
            skipped |= {"nvcc flags", "cxx flags"}
            skipped |= {"module flags", "torch", "python"} if is_cuda(unit) else {"nvcc", "contraction flags"}
        parts = {name: value for name, value in self.parts.items() if name not in skipped}
        if unit in self.cxx:
            parts["sources"] = self.sources
        if unit.part is not None:
            parts["part"] = " ".join(part_flags(unit.part))
        return f"{unit.source.stem}.{digest_of(parts)[:16]}.o"


def collect_inputs(
    package: Path,
    *,
    targets: Sequence[str],
    verification: bool,
    toolchain: Toolchain,
    libraries: Libraries,
    portable: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Inputs:
    """Reads the sources and describes the build. Starts no process.

    portable: without the Python module, the one part that is made for one version of Python.
    """
    environment = os.environ if environment is None else environment
    cuda, cxx = tuple(sorted(package.glob("*.cu"))), tuple(sorted(package.glob("*.cpp")))
    if not cuda or not cxx:
        raise BuildError(f"{package} has no generated sources", hint="generate it first: fusegen build SPEC")
    parts: dict[str, str] = {}
    support = package.parent / SUPPORT
    module = support / MODULE_SOURCE
    has_module = module.is_file() and not portable
    shared = (*([module] if has_module else []), *contraction_of(cxx, support))
    files = {path: _file_parts(path, package.parent) for path in (*cuda, *cxx, *shared)}
    for each in files.values():
        parts |= each
    identity = toolchain.identity()
    has_product = any(PRODUCT_LAUNCHER in path.read_bytes() for path in cuda)
    parts["nvcc flags"] = " ".join(nvcc_flags(targets, verification, has_product))
    if any(path.suffix == ".cu" for path in shared):
        parts["contraction flags"] = " ".join(contraction_flags(targets))
    parts["cxx flags"] = " ".join(cxx_flags(verification))
    parts["link flags"] = " ".join([flag for group in link_flags() for flag in group])
    variables = [f"{name}={environment[name]}" for name in _NVCC_VARIABLES if name in environment]
    parts["nvcc"] = " ".join([identity["nvcc"], *variables])
    parts["C++ compiler"] = identity["cxx"]
    parts["torch"] = libraries.torch_version
    if not portable:
        parts["module flags"] = " ".join(module_flags())
        parts["python"] = libraries.python_version
    return Inputs(
        package=package,
        cuda=tuple(unit for path in cuda for unit in _units(path)),
        cxx=tuple(Unit(path) for path in cxx),
        shared=tuple(Unit(path) for path in shared),
        parts=parts,
        files={path: frozenset(each) for path, each in files.items()},
        sources=sources_of(package),
        has_product=has_product,
    )


def sources_of(package: Path) -> str:
    """The digest of what a package's library is compiled from, as manifests have it."""
    directory = package.parent
    files = [*package.iterdir(), *(directory / SUPPORT).rglob("*")]
    texts = read_compiled(directory, [path.relative_to(directory).as_posix() for path in files])
    return library_digests(texts)[package.name]


def _file_parts(source: Path, directory: Path) -> dict[str, str]:
    """The digests of a source and of what it includes below a directory of packages, by readable names."""
    found = {}
    for path in included_files(source, directory):
        file, (folder, _, name) = directory / path, path.partition("/")
        part = f"source {source.name}" if file == source else f"{'support' if folder == SUPPORT else 'header'} {name}"
        found[part] = digest_of_file(file)
    return found


def contraction_of(bindings: Sequence[Path], support: Path) -> list[Path]:
    """The source of the contraction, if these bindings call it."""
    used = any(CONTRACTION_HEADER.encode() in path.read_bytes() for path in bindings)
    return [support / CONTRACTION_SOURCE] if used else []


def is_cuda(unit: Unit) -> bool:
    return unit.source.suffix == ".cu"


def _units(source: Path) -> list[Unit]:
    text = source.read_bytes()
    return [Unit(source, part) for part in PARTS] if all(part.encode() in text for part in PARTS) else [Unit(source)]


def why_stale(inputs: Inputs) -> str | None:
    """Why the package has to be built, in a few words; None if its `_C.so` is what a build would give."""
    return why_changed(inputs.package / OUTPUT, inputs.package / KEY_FILE, inputs.parts)


def why_changed(output: Path, key_file: Path, parts: Mapping[str, str]) -> str | None:
    """Why `output` is not what `parts` gave when its key file was written; None if it is."""
    try:
        stored, made = read_key(key_file)
    except (OSError, ValueError):
        return "built by something else" if output.is_file() else "not built yet"
    if made is not None and not output.is_file():
        return "not built yet"
    names = stored.keys() | parts.keys()
    changed = sorted(name for name in names if stored.get(name) != parts.get(name))
    if changed:
        return "changed: " + ", ".join(changed)
    is_same = not output.exists() if made is None else made == digest_of_file(output)
    return None if is_same else f"{output.name} is not the one that was built"


def read_key(key_file: Path) -> tuple[dict[str, Any], Any]:
    """The parts that a key file has, and the digest of the output that was made of them. Raises OSError, and ValueError
    where it is no key file."""
    content = parse_json(key_file.read_bytes())
    if not isinstance(content, dict) or not isinstance(content.get("parts"), dict) or "output" not in content:
        raise ValueError("it is no key file")
    return content["parts"], content["output"]


def key_text(parts: Mapping[str, str], output: Path | None) -> str:
    """The content of the key file of a finished output; None for one that cannot be built of these parts."""
    made = None if output is None else digest_of_file(output)
    content = {"key": digest_of(parts), "output": made, "parts": dict(parts)}
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def digest_of(parts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(parts), sort_keys=True).encode()).hexdigest()


def digest_of_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
