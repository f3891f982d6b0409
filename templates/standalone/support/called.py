"""Steps between regions that stay the library's: this file does not claim to beat it."""

import torch


def group_norm(layer, x):
    return torch.ops.aten.group_norm(x, layer.num_groups, layer.weight, layer.bias, layer.eps)


def instance_norm(layer, x):
    of_batch = layer.training or not layer.track_running_stats
    if of_batch and x[0, 0].numel() == 1:
        raise ValueError("an instance norm takes more than one position in training")
    tensors = (layer.weight, layer.bias, layer.running_mean, layer.running_var)
    options = (of_batch, layer.momentum or 0.0, layer.eps, True)
    return torch.ops.aten.instance_norm(x, *tensors, *options)


def softmax(x, dim):
    return x.softmax(dim)


def softmin(x, dim):
    return (-x).softmax(dim)


def log_softmax(x, dim):
    return x.log_softmax(dim)


def logsumexp(x, dim, keepdim):
    return x.logsumexp(dim, keepdim)


def normalize(x, p, dim, eps):
    return x / x.norm(p, dim, keepdim=True).clamp_min(eps)
