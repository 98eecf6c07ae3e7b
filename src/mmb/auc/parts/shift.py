"""What holds the scores of a task in place where the loss does not see a shift of all of them."""

from torch import Tensor

from mmb.auc.parts.weighted_scores import WeightedScores

PULL = 1e-3


def hold_shift(entries: WeightedScores, center: Tensor, pull: float = PULL) -> tuple[Tensor, Tensor]:
    r"""A weak pull on the mean score of each task, `[k]`, and its derivative by the logits, `[rows, k]`.

    $$
    \frac{\kappa}{2} q^2, \qquad q = \tfrac12 E_+[z - c] + \tfrac12 E_-[z - c],
    $$

    with the center `c` `[k]` and $\kappa$ = `pull`. A loss of differences $z_+ - z_-$ has no derivative by a
    bias. What is computed in its place is rounding, and Adam turns that into steps of full size: the scores
    of a task wander, thresholds follow late, and no two machines take the same path. Positives and negatives
    are pulled alike, so that the ranking does not feel it.
    """
    both = entries.positive + entries.negative
    offset = 0.5 * (entries.logits - center).mul_(both).sum(0)
    force = 0.5 * pull * offset
    return force * offset, force * both
