"""Ops that people look for and the catalogue lacks, each with what to do instead, and other names of those it has."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from fusegen.errors import quote

_CUT = "end the chain before it, and call it on the module's result"
_IN_FRONT = "call it first, and give its result to the chain, as [rows, channels]"
_FAMILIES = {
    "the reductions are sum, mean, max, min, amax, amin, logsumexp, var, std and norm": (
        f"{_CUT}; to add a tensor is 'add'",
        "prod argmin argmax cumsum cumprod count_nonzero median topk sort ",
    ),
    "softmax, softmin and log_softmax there are": (_CUT, "softmax2d gumbel_softmax"),
    "the convolutions are conv1d, conv2d, conv3d and conv_transpose1d, 2d and 3d": (
        _IN_FRONT,
        "conv convolution deform_conv2d unfold fold",
    ),
    "the pooling ops are max_pool, avg_pool, adaptive_avg_pool, adaptive_max_pool and lp_pool, with 1d, 2d or 3d": (
        "call it between two chains, of what is in front of it and of what is behind",
        "pooling fractional_max_pool2d fractional_max_pool3d max_unpool1d max_unpool2d max_unpool3d",
    ),
    "the only random numbers are those of dropout and drop_path": (
        "apply it to the module's input or result",
        "dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout feature_dropout rrelu bernoulli",
    ),
    "the matrix products are those of 'linear', 'matmul' and 'bmm'": (
        "with a learnt weight it is 'linear' or 'matmul', of two inputs 'bmm'; otherwise " + _IN_FRONT,
        "mm addmm baddbmm addmv mv dot outer einsum bilinear tensordot",
    ),
    "the norms are batch_norm, group_norm, layer_norm, rms_norm and instance_norm": (
        _CUT,
        "local_response_norm lrn weight_norm spectral_norm",
    ),
    "what changes shapes is 'flatten', 'unsqueeze', reductions, and layers of channels and positions": (
        "change the shape of the module's input or result",
        "unflatten reshape view transpose permute squeeze expand repeat stack pad gather index_select",
    ),
    "the parts of 'chunk' are equal": (
        "take one after the other with 'narrow'",
        "split tensor_split unbind unsafe_chunk",
    ),
    "a chain has no attention, embeddings or recurrence": (
        _IN_FRONT,
        "attention scaled_dot_product_attention multihead_attention embedding embedding_bag rnn lstm gru",
    ),
    "the loss is cross_entropy": (
        "call it on the module's result",
        "nll_loss mse_loss l1_loss smooth_l1_loss huber_loss bce_loss binary_cross_entropy kl_div",
    ),
    "its function is not in the catalogue yet": (
        "docs/adding_an_op.md says how to add one",
        "erfinv frac fmod remainder isnan nan_to_num logit",
    ),
    "a chain compares nothing": (
        "relu, leaky_relu, elu, threshold, hardshrink and clamp choose by element; other masks are inputs of bool",
        "where eq ne lt le gt ge",
    ),
    "its norms have a gradient where eps takes their place": (
        "write it as the sum over the channels of the product of two 'normalize'",
        "cosine_similarity",
    ),
    "it has two operands besides the running value": (
        "write it as 'mul', 'div' and 'add', one after the other",
        "lerp addcmul addcdiv",
    ),
    "it changes nothing": ("leave the step out", "identity noop contiguous clone"),
}
# The name without '_' and in small letters -> the name, the reason, and what to do.
LACKING = {
    re.sub("_", "", name): (name, reason, advice)
    for reason, (advice, names) in _FAMILIES.items()
    for name in names.split()
}
# The same of other names -> the op, with the keys that make it the one that is meant.
OTHER_NAMES = {
    other: name
    for name, others in {
        "linear": "gemm dense fc fullyconnected",
        "add": "plus bias biasadd addbias residual residualadd addition",
        "sub": "subtract subtraction minus",
        "mul": "multiply multiplication times scale scaling",
        "div": "divide division truedivide",
        "sigmoid": "logistic expit",
        "clamp": "clip clampmin clampmax",
        "neg": "negate negative",
        "abs": "absolute fabs",
        "pow": "power",
        "square": "sqr squared",
        "sqrt": "squareroot",
        "rsqrt": "inversesqrt",
        "reciprocal": "inverse inv recip",
        "log": "ln loge",
        "exp": "exponential",
        "leaky_relu": "lrelu",
        "batch_norm": "batchnorm1d batchnorm2d batchnorm3d bn",
        "batch_norm, sync: true": "syncbatchnorm syncbn",
        "group_norm": "gn",
        "instance_norm": "instancenorm1d instancenorm2d instancenorm3d",
        "rms_norm": "rootmeansquarenorm",
        **{f"conv_transpose{n}d": f"deconv{n}d convolutiontranspose{n}d" for n in (1, 2, 3)},
        **{f"conv{n}d": f"convolution{n}d" for n in (1, 2, 3)},
        "atan2": "arctan2",
        "normalize": "l2normalize normalise",
        "norm": "vectornorm linalgvectornorm",
        "var": "variance",
        "std": "stddev standarddeviation",
        "sign": "sgn signum",
        **{name: name.replace("a", "arc", 1) for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
        "trunc": "fix",
        "cat": "concat concatenate",
        "upsample": "interpolate resize",
        "gelu": "geluerf",
        "gelu, approximate: tanh": "gelutanh gelufast gelunew",
        "drop_path": "stochasticdepth",
        **{name: f"reduce{name}" for name in ("sum", "mean", "max", "min")},
    }.items()
    for other in others.split()
}
# The least likeness, by difflib, of what may be meant: a guess of what is there can be tried, one of what is not helps
# only if it is right.
_LIKE, _VERY_LIKE = 0.7, 0.8


def unknown_op(op: str, known: Iterable[str]) -> tuple[str, str | None]:
    """What to say of an op that is not in the catalogue, and a hint. known: the ops that are."""
    word = _plain(op)
    names = {_plain(name): name for name in reversed(list(known))} | OTHER_NAMES
    if word in OTHER_NAMES:
        return f"unknown op {quote(op)}", f"it is called {quote(OTHER_NAMES[word])} here"
    if word in LACKING:
        _, reason, advice = LACKING[word]
        return f"the op {quote(op)} is not supported: {reason}", advice
    likeness, meant = _nearest(word, names)
    other, lacking = _nearest(word, LACKING)
    if other > max(likeness, _VERY_LIKE):
        name, reason, _ = LACKING[lacking]
        return f"unknown op {quote(op)}", f"{quote(name)}, if that is meant, is not supported: {reason}"
    if likeness >= _LIKE:
        return f"unknown op {quote(op)}", f"did you mean {quote(names[meant])}?"
    return (
        f"unknown op {quote(op)}",
        "`fusegen ops` lists those that there are; one of a plugin needs the plugin installed",
    )


def _plain(op: str) -> str:
    """The op without what people write differently: `nn.LeakyReLU` and `leaky_relu` are one."""
    return re.sub(r"[\W_]", "", op.lower().removeprefix("torch.").removeprefix("nn.").removeprefix("f."))[:64]


def _nearest(word: str, words: Iterable[str]) -> tuple[float, str]:
    """How much the nearest of some words is like this one, and that word."""
    matcher = difflib.SequenceMatcher()
    matcher.set_seq2(word)
    best = (0.0, "")
    for other in words:
        matcher.set_seq1(other)
        if matcher.real_quick_ratio() >= best[0] and matcher.quick_ratio() >= best[0]:
            best = max(best, (matcher.ratio(), other))
    return best
