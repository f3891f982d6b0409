"""The compiled library of a generated package, which has its ops: imported and loaded once."""

import functools
import hashlib
import importlib
import json
import os
import sys
from pathlib import Path

import torch

from .dtype_modes import modes_of

_NAMESPACE = "fusegen"

_imported = {}  # by file: the name under which a package was imported first


class Package:
    """The compiled library of one generated package.

    dtypes: of the roles of tensors, by dtype mode. key: the roles that tell the mode of a call.
    plain, autocast: the modes of calls without and under autocast. spec: the one that it is made
    of, where that has another name. Raises ImportError where the package was imported under another
    name before.
    """

    def __init__(self, name, module, file, device, roles, dtypes, key, plain, autocast, spec=None):
        self.name, self.device, self._spec = name, device, spec or name
        self.dtypes = [dict(zip(roles, row, strict=True)) for row in dtypes]
        for row in self.dtypes:
            is_double = row["activation"] == torch.float64
            row["accumulator"] = torch.float64 if is_double else torch.float32
            row["tap"] = torch.uint8
        self.plain_modes = modes_of(self.dtypes, key, plain)
        self.autocast_modes = modes_of(self.dtypes, key, autocast)
        self._modes = {}
        for mode, row in enumerate(self.dtypes):
            for each in row.items():
                self._modes.setdefault(each, mode)
        self._module = module
        self.file = Path(file)
        self.library = self.file.with_name("_C.so")
        import_once(module, Path(file).resolve())
        self.built = self.library.exists()

    @functools.cached_property
    def sources(self):
        """The digest of the library's sources that the manifest has: part of every op's name.

        So a library of other sources is noticed, and packages of one name live together in a
        process: they share their ops where they are alike. Raises ImportError where no manifest has
        it, and where it lists another text of the package.
        """
        manifest = _manifest_of(self.file)
        found = _listed(manifest, "sources", self.file.parent.name)
        if found is None:
            raise ImportError(
                f"{manifest} does not say what {self.library} is to be built from: {self.command()}"
            )
        require_listed(self.file, self.command())
        return found

    def find_op(self, function):
        """torch.ops.fusegen.<name>_<function>_<sources>, loaded if it has to be.

        Raises ImportError where the library lacks it: it was built from other sources.
        """
        name = self._full_name(function)
        if not _is_registered(name):
            torch.ops.load_library(self.library)
        elif os.path.realpath(self.library) not in torch.ops.loaded_libraries:
            # Another copy has registered the ops. A second registration aborts the process.
            sys.modules[f"{self._module}._C"] = None
        if not _is_registered(name):
            raise ImportError(
                f"{self.library} was built from other sources than these: {self.command()}"
            )
        return getattr(getattr(torch.ops, _NAMESPACE), name).default

    def has_op(self, function):
        """Whether the library, which is loaded, has such an op."""
        return _is_registered(self._full_name(function))

    def _full_name(self, function):
        return f"{self.name}_{function}_{self.sources}"

    @functools.cached_property
    def unchanged(self):
        """The library's function of that name, which says whether objects hold what they held.
        None where the library has no Python module, as in a wheel."""
        try:
            return importlib.import_module(f"{self._module}._C").unchanged
        except ImportError:
            return None

    def mode_of(self, role, dtype):
        """The first dtype mode in which tensors of a role have a dtype, if there is one."""
        return self._modes.get((role, dtype))

    def command(self):
        return f"run `fusegen build specs/{self._spec}.yaml`"

    def no_second_derivative(self):
        return (
            f"{self.name} has no second derivative: use create_graph=False, or call the module's "
            "fusegen_reference, which is the chain in PyTorch's own operators"
        )


def require_listed(file, command):
    """Raises ImportError where a manifest lists another text of a package than is in its file.

    Then the text is of another rendering than what is beside it, and module and kernels may compute
    different chains. Other line endings are the same text. Without a manifest nothing is compared:
    there a library is refused.
    """
    manifest = _manifest_of(file)
    if not manifest.exists():
        return
    digest = hashlib.sha256(file.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
    if _listed(manifest, "files", f"{file.parent.name}/{file.name}") != digest:
        raise ImportError(f"{file} is not what {manifest} lists: {command}")


def _manifest_of(file):
    return file.parents[1] / "manifest.json"


def _listed(manifest, kind, name):
    """What a manifest has under a name; None where it has nothing, or cannot be read."""
    try:
        return json.loads(manifest.read_bytes())[kind][name]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def import_once(module, file):
    """A second name would make a second class of the same file."""
    first = _imported.setdefault(file, module)
    if first != module and first in sys.modules:
        raise ImportError(
            f"{file} was imported as {first!r} before: import it by that name, not as {module!r}"
        )
    _imported[file] = module


def _is_registered(name):
    return torch._C._dispatch_has_kernel(f"{_NAMESPACE}::{name}")
