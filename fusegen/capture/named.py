"""Models of packages by a name, such as timm:resnet50, made without memory for their weights."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.importing.load import Loaded
from fusegen.importing.traces.source_locations import refusal

BATCH, TOKENS = 8, 128


def is_named(model: str) -> bool:
    return model.partition(":")[0] in _PACKAGES


def named_model(model: str) -> Loaded:
    """A model with random weights, in training, and inputs of 8 samples. model: PACKAGE:NAME.

    Of timm and torchvision NAME is a model's, of transformers a directory with a config.json, or what
    AutoConfig.from_pretrained takes. Raises SpecError.
    """
    package, _, name = model.partition(":")
    try:
        source = importlib.import_module(package)
    except Exception as error:  # it is not there, or does not fit the torch that is
        message = f"{package} cannot be imported: {type(error).__name__}: {error}"[:300]
        raise refusal("FG701", message, hint=f"python -m pip install {package}") from None
    try:
        with torch.device("meta"):
            module, example = _PACKAGES[package](source, name)
    except Exception as error:  # the package's, of any kind
        raise refusal("FG701", f"{package} makes no {name}: {type(error).__name__}: {error}"[:300]) from None
    return Loaded(module.train(), [example], [])


def _timm(package: Any, name: str) -> tuple[nn.Module, Tensor]:
    model = package.create_model(name)
    return model, torch.empty(BATCH, *model.pretrained_cfg["input_size"])


def _torchvision(package: Any, name: str) -> tuple[nn.Module, Tensor]:
    return package.models.get_model(name, weights=None), torch.empty(BATCH, 3, 224, 224)


def _transformers(package: Any, name: str) -> tuple[nn.Module, Tensor]:
    config = package.AutoConfig.from_pretrained(name)
    return package.AutoModel.from_config(config), torch.empty(BATCH, TOKENS, dtype=torch.int64)


_PACKAGES: dict[str, Callable[[Any, str], tuple[nn.Module, Tensor]]] = {
    "timm": _timm,
    "torchvision": _torchvision,
    "transformers": _transformers,
}
