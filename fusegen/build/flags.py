"""The flags of every compiler, free of this machine's paths, so that they can be part of the key."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fusegen.build.errors import BuildError

# No fast-math anywhere. Hidden by default: two packages in one process must not see each other's launchers.
# -Og is for the host compiler, which gets nothing but launchers and takes a quarter less time than with -O1; a launch
# takes 0.1 us more of the host. nvcc gets no -O, and optimises device code in full.
# What templates compute when they are compiled may call constexpr functions of the standard library.
_NVCC = ("-std=c++17", "--expt-relaxed-constexpr", "-Xcompiler", "-fPIC,-fvisibility=hidden,-Og")
# The binding takes a quarter less time to compile than with -O2, and a call of an op no more than before.
_CXX = ("-O1", "-std=c++17", "-fPIC", "-fvisibility=hidden")
# Of the Python module one function is called often, and -O1 would save a tenth of its 1.5 us. -Og takes a fifth less
# time than -O1 to compile the module; -O0 takes no less than -Og and makes each extension 0.6 MB larger.
_MODULE = ("-Og", "-std=c++17", "-fPIC", "-fvisibility=hidden")
# Python loads torch's libraries privately (RTLD_LOCAL), so the object has to name the one it takes symbols
# from, even where a linker believes it unused. The CUDA run time is static and its symbols are hidden: the
# one that torch has loaded is neither needed nor disturbed. The C++ library comes before torch's, some versions of
# which export functions of it: an object that took them from there would not load beside other versions.
_LINK = ("-shared", "-Wl,--exclude-libs,ALL")
DEFINED = ("-Wl,--no-undefined",)  # what no library has is an error when it is linked, not when it is loaded
_LINK_LIBRARIES = (
    "-lstdc++", "-Wl,--no-as-needed", "-ltorch_cpu", "-Wl,--as-needed", "-lcudart_static", "-ldl", "-lrt", "-lpthread",
)  # fmt: skip

# Torch's own headers, from 2.13 on, are C++20. With the define they include the few operators that they use, not
# ATen/Functions.h with all of them: the same object in a quarter less time.
_AUTOGRAD = ("-O1", "-std=c++20", "-fPIC", "-fvisibility=hidden", "-DAT_PER_OPERATOR_HEADERS", "-shared")


# A source that has guards of these names is compiled once for each, with the name defined: on two cores at once.
# The one that takes longer comes first.
PARTS = ("FUSEGEN_BACKWARD_ONLY", "FUSEGEN_FORWARD_ONLY")


def part_flags(part: str) -> list[str]:
    """Flags for one of a source's parts. The constants that only the other needs are no reason to warn."""
    return [f"-D{part}", "-diag-suppress=177"]


def core_flags(cores: int, targets: Sequence[str]) -> list[str]:
    """Flags to compile one source for several targets at the same time and, if cores are left, several of its kernels.

    More at a time than there are cores takes longer, and so do divided kernels: up to a seventh more work in all. None
    of it is part of the key: the machine code is the same.
    """
    architectures = {option.split(",")[0] for option in gencode(targets)}  # each is compiled on its own
    at_once = max(1, min(cores, len(architectures)))
    split = cores // at_once
    flags = [f"--threads={at_once}"] if at_once > 1 else []
    return [*flags, f"--split-compile={split}"] if split > 1 else flags


def nvcc_flags(targets: Sequence[str], verification: bool, has_product: bool = False) -> list[str]:
    """Flags for `*.cu`: machine code for every target, and PTX so that newer GPUs run it too.

    has_product: whether its kernels make products. The tensor cores of sm_90 can be told what to do by code for sm_90a
    alone, which runs there as well.
    """
    if has_product:
        targets = ["sm_90a" if target == "sm_90" else target for target in targets]
    kernel = ["-DFUSEGEN_SM_90A"] if "sm_90a" in targets else []  # a host cannot see it in __CUDA_ARCH_LIST__
    return [*_NVCC, *(kernel if has_product else []), *gencode(targets), *_verification(verification)]


def contraction_flags(targets: Sequence[str]) -> list[str]:
    """Flags for `contraction.cu`, whose kernels have no types to add for verification."""
    return nvcc_flags(targets, verification=False, has_product=True)


def cxx_flags(verification: bool) -> list[str]:
    """Flags for `bindings.cpp`."""
    return [*_CXX, *_verification(verification)]


def sources_flags(digest: str) -> list[str]:
    """The digest of what a library is compiled from, which the library has."""
    return [f'-DFUSEGEN_SOURCES="{digest}"']


def module_flags() -> list[str]:
    """Flags for `python_module.cpp`."""
    return list(_MODULE)


def autograd_flags() -> list[str]:
    """Flags for `autograd.cpp`, which becomes a library at once."""
    return list(_AUTOGRAD)


def link_flags() -> tuple[list[str], list[str]]:
    """Flags before and after the objects. No rpath: torch's libraries are loaded first and found by name."""
    return list(_LINK), list(_LINK_LIBRARIES)


def gencode(targets: Sequence[str]) -> list[str]:
    """`-gencode` options: `sm_90` gives its machine code, the newest target also its PTX.

    The PTX is that of the plain architecture (compute_90 for sm_90a): that of sm_90a runs on no newer GPU.
    """
    parsed = sorted({_parse(target) for target in targets})
    if not parsed:
        raise BuildError("no targets to build for", hint="give at least one, such as sm_90")
    newest = parsed[-1][0]
    machine = [f"-gencode=arch=compute_{n}{kind},code=sm_{n}{kind}" for n, kind in parsed]
    return [*machine, f"-gencode=arch=compute_{newest},code=compute_{newest}"]


def _parse(target: str) -> tuple[int, str]:
    found = re.fullmatch(r"sm_(\d{2,3})([af]?)", target)
    if found is None:
        raise BuildError(f"{target!r} is no target", hint="write it like sm_80, sm_90, sm_90a or sm_100")
    return int(found.group(1)), found.group(2)


def _verification(on: bool) -> list[str]:
    return ["-DFUSEGEN_VERIFICATION"] if on else []
