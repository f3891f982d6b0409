"""GPUs by their names in shops, for those who write one where nvcc's name of its architecture belongs."""

from __future__ import annotations

import re

_ARCHITECTURES = {
    "sm_75": "T4, RTX 2060, RTX 2070, RTX 2080, Titan RTX, Quadro RTX 5000, Quadro RTX 6000, Quadro RTX 8000",
    "sm_80": "A100, A800, A30",
    "sm_86": "A2, A10, A16, A40, RTX A2000, RTX A4000, RTX A4500, RTX A5000, RTX A5500, RTX A6000, RTX 3050, RTX 3060, "
    "RTX 3070, RTX 3080, RTX 3090",
    "sm_87": "Jetson AGX Orin, Jetson Orin, AGX Orin, Orin",
    "sm_89": "L4, L20, L40, RTX 4050, RTX 4060, RTX 4070, RTX 4080, RTX 4090, RTX 6000 Ada, RTX 5000 Ada",
    "sm_90": "H20, H100, H200, H800, GH200",
    "sm_100": "B100, B200, GB200",
    "sm_103": "B300, GB300",
    "sm_110": "Jetson T4000, Jetson T5000, Jetson Thor, AGX Thor, Thor",
    "sm_120": "RTX 5050, RTX 5060, RTX 5070, RTX 5080, RTX 5090, RTX PRO 4000, RTX PRO 5000, RTX PRO 6000",
    "sm_121": "GB10, DGX Spark",
}
_BRAND = re.compile(r"^(nvidia|geforce|tesla)+")
# sm90, compute_90, 90 and 9.0, as torch and CMake have it.
_NUMBER = re.compile(r"(?:sm|compute)?[ _-]?(\d{1,2})\.?(\d)(a?)")


def _plain(name: str) -> str:
    return _BRAND.sub("", re.sub(r"[^a-z0-9]", "", name.lower()))


_TARGETS = {_plain(name): target for target, names in _ARCHITECTURES.items() for name in names.split(", ")}


def architecture(name: str) -> str | None:
    """What nvcc calls the architecture of a GPU, such as sm_90 of "NVIDIA H100 80GB HBM3", or of a number of it, such
    as 9.0; None where it is not known. Behind a GPU's name may be its memory and anything that is no digit."""
    number = _NUMBER.fullmatch(name.strip().lower())
    if number is not None:
        return "sm_" + "".join(number.groups())
    plain = _plain(name)
    for candidate in (plain, f"rtx{plain}"):
        known = [each for each in _TARGETS if re.match(rf"{each}(?!\d)|{each}(?=\d+g)", candidate)]
        if known:
            return _TARGETS[max(known, key=len)]
    return None


def suggestion(target: str) -> str | None:
    """What to write in the place of a target that is none, if it names a GPU."""
    known = architecture(target)
    return None if known in (None, target) else f"write {known}, nvcc's name for it"
