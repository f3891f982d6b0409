"""Batch norms with running statistics in a call: which statistics are taken, what moves those."""

from .constants import not_numbers
from .stand_in import (
    HALF_TRACKED,
    NEGATIVE_MOMENTUM,
    ONE_ROW,
    SOME_FROZEN,
    is_fit,
    misfit,
    misfit_statistics,
    tensor,
)


def running_statistics(norms, dtype, channels, lacks_variance, batch):
    """What a call reads or moves of each norm, whether running statistics are taken in place of the
    batch's, and why the kernels do not run, if so.

    norms: a name and a module each. dtype, channels: of the kernels' statistics. lacks_variance: a
    function of `batch` that tells whether it has none; None where that does not matter. As in
    nn.BatchNorm the batch's are taken in training, and where there are no others. Of each norm the
    first are the running mean and variance, [channels], and the count of batches, a scalar, or None
    where they are not moved. The last is the momentum, None for the average of all batches.
    """
    found, training = [], 0
    for _, norm in norms:
        mean, variance = tensor(norm, "running_mean"), tensor(norm, "running_var")
        if mean is None:
            if variance is not None:
                return None, False, HALF_TRACKED
            training += 1
        elif variance is None:
            return None, False, HALF_TRACKED
        elif norm.training:
            training += 1
        found.append((mean, variance, None, None))
    if training == len(norms):
        if lacks_variance is not None and lacks_variance(batch):
            return None, False, ONE_ROW
        return _moved(norms, found, dtype, channels)
    if training:
        return None, False, SOME_FROZEN
    shape = (channels,)
    for index, (mean, variance, _, _) in enumerate(found):
        if not (is_fit(mean, dtype, shape) and is_fit(variance, dtype, shape)):
            name = norms[index][0]
            names = (f"{name}.running_mean", f"{name}.running_var")
            return None, True, misfit(names, (mean, variance), dtype, shape)
    return found, True, None


def _moved(norms, found, dtype, channels):
    moved = []
    for index, (name, norm) in enumerate(norms):
        mean, variance, _, _ = found[index]
        momentum, batches = norm.momentum, None
        if momentum is not None:
            why = not_numbers(momentum)
            if why:
                return None, False, why
            if momentum < 0:
                return None, False, NEGATIVE_MOMENTUM
        if norm.training and norm.track_running_stats:
            batches = tensor(norm, "num_batches_tracked")
            why = misfit_statistics(name, mean, variance, batches, dtype, channels)
            if why:
                return None, False, why
        else:
            mean = variance = None
        moved.append((mean, variance, batches, momentum))
    return moved, False, None


def is_one_row(x):
    """Whether [rows, channels] has no variance of the rows."""
    return x.shape[0] == 1


def counted(momentum, batches, count):
    """The momentum as the kernels take it: negative for the average of all batches.

    count: whether the batch is counted for that, in front of the kernels, all of whose blocks read
    the count.
    """
    if momentum is not None:
        return momentum
    if batches is None:
        return 0.0
    if count:
        batches.add_(1)
    return -1.0
