"""Cross-entropy added to an objective that continues from trained weights, and sizes of gradients."""

import torch
from torch import Tensor, nn

from mmb.auc.parts.autograd import Result
from mmb.auc.parts.weighted_scores import WeightedScores

BETA = 0.05


class Anchor(nn.Module):
    r"""Keeps weights that cross-entropy has found from being undone by another objective.

    From `hold` on, the gradient of task `k` at its logits is the weighted mean

    $$
    \frac1{1 + \kappa} \Bigl( \kappa\, g^{CE}_k + \frac{n^{CE}_k}{n_k} g_k \Bigr),
    \qquad n_k^2 \leftarrow (1 - \beta)\, n_k^2 + \beta\, \|g_k\|^2,
    $$

    of that of cross-entropy and that of the objective, $g_k$, brought to the same size, with the weight
    $\kappa$ = `strength`. So no unit of scores or of the loss has to be guessed, and a step size that suits
    cross-entropy suits this. Until then, it is $g_k$. The sizes are block state, of the dtype and on the
    device of `like`, `[m]`.
    """

    size: Tensor  # [m, 2], squares: of cross-entropy, of the objective
    weight: Tensor  # kappa, [m]; 0 for tasks that are not held

    def __init__(self, strength: float, like: Tensor) -> None:
        super().__init__()
        self.strength = strength
        self.register_buffer("size", like.new_zeros(len(like), 2))
        self.register_buffer("weight", like.new_zeros(len(like)))

    def hold(self, tasks: Tensor) -> None:
        """From now on, keep some tasks, a bool `[m]`, to cross-entropy."""
        self.weight.copy_(torch.where(tasks, self.strength, self.weight))

    def forward(self, entries: WeightedScores, prior: Tensor, result: Result) -> Result:
        """The result of an objective, with the mean gradient; `prior`: the tasks' positive rates, `[m]`."""
        value, ((logits, by_logits), *own) = result
        chance, share = torch.sigmoid(logits), entries.gather(prior)
        pull = (1 - share) * entries.negative * chance - share * entries.positive * (1 - chance)
        pull = pull * entries.scale
        wanted = follow_size(entries, self.size[:, 0], pull, BETA, self.training)
        size = follow_size(entries, self.size[:, 1], by_logits, BETA, self.training)
        weight = entries.gather(self.weight)
        ratio = torch.where(size > 0, (wanted / size).sqrt(), 0.0).where(weight > 0, 1.0)
        return value, [(logits, (weight * pull + ratio * by_logits) / (1 + weight)), *own]


def follow_size(
    entries: WeightedScores, state: Tensor, by_logits: Tensor, beta: float, training: bool
) -> Tensor:
    """Squared size `[k]` of the gradients of a batch's tasks: the mean that `state`, `[m]`, keeps of it.

    It starts at zero: a ratio of two sizes needs no correction for that.
    """
    # of the task alone: without task weights, and whatever the number of tasks
    alone = torch.where(entries.sampled, entries.scale, 1.0)
    square = (by_logits * by_logits).sum(0) / (alone * alone)
    size = torch.lerp(entries.gather(state).to(square.dtype), square, beta)
    if training:
        entries.scatter_(state, size)
    return size
