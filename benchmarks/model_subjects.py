"""The models of models.py: a module, a batch, a loss, and the precision of the training step.

Sizes are those of common training recipes on one GPU. Weights are random. timm, transformers and diffusers have the
models; those of few lines are here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Precision = Literal["amp", "bf16", "tf32", "fp32"]
Batch = tuple[Tensor, ...]
VOCABULARY = 30_000


@dataclass(frozen=True)
class Subject:
    """make: the model in training, on the CPU. batch: tensors for a device, made by its generator. loss: of the
    model's result and what of the batch is no input. images: the model and its inputs are channels_last."""

    make: Callable[[], nn.Module]
    batch: Callable[[str], Batch]
    loss: Callable[[Any, Batch], Tensor]
    precision: Precision
    images: bool = False
    inputs: int = 1


class Step(nn.Module):
    """Model and loss in one module, so that a compiler sees both. Arguments: the tensors of a batch."""

    def __init__(self, model: nn.Module, subject: Subject) -> None:
        super().__init__()
        self.model, self.subject = model, subject

    def forward(self, *batch: Tensor) -> Tensor:
        count = self.subject.inputs
        return self.subject.loss(self.model(*batch[:count]), batch[count:])


class TabularMLP(nn.Module):
    """Layers of linear, batch norm, relu and dropout. Input: [batch, width]."""

    def __init__(self, width: int = 4096, depth: int = 6, classes: int = 10) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(
                nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.1))
                for _ in range(depth)
            )
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x))


class DCGAN(nn.Module):
    """The generator of DCGAN (Radford et al., 2015). Input: [batch, noise, 1, 1]; result: [batch, 3, 64, 64]."""

    def __init__(self, noise: int = 128, width: int = 128) -> None:
        super().__init__()
        widths = [noise, 8 * width, 4 * width, 2 * width, width]
        layers: list[nn.Module] = []
        for at, (before, behind) in enumerate(zip(widths, widths[1:], strict=False)):
            stride, padding = (1, 0) if at == 0 else (2, 1)
            layers.append(nn.ConvTranspose2d(before, behind, 4, stride, padding, bias=False))
            layers += [nn.BatchNorm2d(behind), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class UNet(nn.Module):
    """U-Net (Ronneberger et al., 2015) with batch norms. Input: [batch, 3, H, W]; result: [batch, 2, H, W]."""

    def __init__(self, widths: tuple[int, ...] = (3, 64, 128, 256, 512)) -> None:
        super().__init__()

        def double(before: int, behind: int) -> nn.Module:
            layers: list[nn.Module] = []
            for inputs in (before, behind):
                layers.append(nn.Conv2d(inputs, behind, 3, padding=1, bias=False))
                layers += [nn.BatchNorm2d(behind), nn.ReLU(inplace=True)]
            return nn.Sequential(*layers)

        self.down = nn.ModuleList(double(a, b) for a, b in zip(widths, widths[1:], strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths[1:], widths[2:], strict=False))
        self.merge = nn.ModuleList(double(2 * a, a) for a in widths[1:-1])
        self.head = nn.Conv2d(widths[1], 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for down in self.down:
            x = down(F.max_pool2d(x, 2) if kept else x)
            kept.append(x)
        kept.pop()
        for up, merge in zip(reversed(self.up), reversed(self.merge), strict=True):
            x = merge(torch.cat([kept.pop(), up(x)], 1))
        return self.head(x)


def _random(*shape: int) -> Callable[[str], Tensor]:
    return lambda device: torch.randn(shape, device=device)


def _integers(limit: int, *shape: int) -> Callable[[str], Tensor]:
    return lambda device: torch.randint(limit, shape, device=device)


def _batch(*makers: Callable[[str], Tensor]) -> Callable[[str], Batch]:
    return lambda device: tuple(make(device) for make in makers)


def _mean_squares(result: Any, targets: Batch) -> Tensor:
    return F.mse_loss(getattr(result, "sample", result).float(), targets[0])


def _classes(result: Any, targets: Batch) -> Tensor:
    return F.cross_entropy(result.float(), targets[0])


def _tokens(result: Any, targets: Batch) -> Tensor:
    logits = result.logits
    return F.cross_entropy(logits.float().flatten(0, -2), targets[0].flatten())


def _boxes(result: Any, targets: Batch) -> Tensor:
    return F.cross_entropy(result.logits.float().flatten(0, 1), targets[0].flatten()) + F.l1_loss(
        result.pred_boxes.float(), targets[1]
    )


def _timm(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import timm

        return timm.create_model(name)

    return make


def _classifier(name: str, batch: int, *, images: bool = True) -> Subject:
    data = _batch(_random(batch, 3, 224, 224), _integers(1000, batch))
    return Subject(_timm(name), data, _classes, "amp", images)


def _bert() -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig(attn_implementation="sdpa"))


def _gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(attn_implementation="sdpa", use_cache=False))


class _T5(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import T5Config, T5ForConditionalGeneration

        config = T5Config(d_model=512, d_ff=2048, num_layers=6, num_heads=8, use_cache=False)
        self.model = T5ForConditionalGeneration(config)

    def forward(self, tokens: Tensor, decoded: Tensor) -> Any:
        return self.model(input_ids=tokens, decoder_input_ids=decoded)


def _llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(num_hidden_layers=4, num_key_value_heads=8, attn_implementation="sdpa", use_cache=False)
    return LlamaForCausalLM(config)


def _detr() -> nn.Module:
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    stages = ResNetConfig(out_features=["stage4"])
    config = DetrConfig(use_timm_backbone=False, backbone_config=stages, backbone=None, num_labels=91)
    return DetrForObjectDetection(config)


class _Diffusion(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from diffusers import UNet2DModel

        self.model = UNet2DModel(sample_size=64, block_out_channels=(128, 256, 384, 512), norm_num_groups=32)

    def forward(self, x: Tensor, times: Tensor) -> Any:
        return self.model(x, times)


_tabular = _batch(_random(8192, 4096), _integers(10, 8192))
SUBJECTS: dict[str, Subject] = {
    "tabular_mlp": Subject(TabularMLP, _tabular, _classes, "amp"),
    "tabular_mlp_tf32": Subject(TabularMLP, _tabular, _classes, "tf32"),
    "tabular_mlp_fp32": Subject(TabularMLP, _tabular, _classes, "fp32"),
    "dcgan": Subject(DCGAN, _batch(_random(256, 128, 1, 1), _random(256, 3, 64, 64)), _mean_squares, "amp"),
    "unet": Subject(UNet, _batch(_random(16, 3, 256, 256), _integers(2, 16, 256, 256)), _classes, "amp", True),
    "resnet50": _classifier("resnet50", 128),
    "efficientnet_b0": _classifier("efficientnet_b0", 128),
    "mobilenetv3": _classifier("mobilenetv3_large_100", 256),
    "convnext_tiny": _classifier("convnext_tiny", 64),
    "vit_base": _classifier("vit_base_patch16_224", 64, images=False),
    "mixer": _classifier("mixer_b16_224", 64, images=False),
    "swin_tiny": _classifier("swin_tiny_patch4_window7_224", 64, images=False),
    "bert_base": Subject(_bert, _batch(*2 * [_integers(VOCABULARY, 32, 512)]), _tokens, "amp"),
    "gpt2": Subject(_gpt2, _batch(*2 * [_integers(50_000, 8, 1024)]), _tokens, "amp"),
    "t5_small": Subject(_T5, _batch(*3 * [_integers(32_000, 16, 512)]), _tokens, "amp", inputs=2),
    "llama_4_layers": Subject(_llama, _batch(*2 * [_integers(32_000, 2, 2048)]), _tokens, "bf16"),
    "detr": Subject(
        _detr, _batch(_random(8, 3, 512, 512), _integers(92, 8, 100), _random(8, 100, 4)), _boxes, "amp", True
    ),
    "diffusion_unet": Subject(
        _Diffusion,
        _batch(_random(16, 3, 64, 64), _integers(1000, 16), _random(16, 3, 64, 64)),
        _mean_squares,
        "amp",
        True,
        inputs=2,
    ),
}
# As most people have them.
SUBJECTS |= {f"{name}_contiguous": replace(SUBJECTS[name], images=False) for name in ("unet", "resnet50")}
# In float32, which TF32 does not round, with the sizes that they have in 16 bits.
SUBJECTS |= {
    f"{name}_fp32": replace(SUBJECTS[name], precision="fp32")
    for name in ("vit_base", "bert_base", "gpt2", "llama_4_layers")
}
# Of the self-test.
TINY = Subject(lambda: TabularMLP(16, 2), _batch(_random(8, 16), _integers(10, 8)), _classes, "fp32")
