"""MinMaxAUC: multi-task AUC maximization with the min-max margin loss (mAUC)."""

import torch
from torch import Tensor

from mmb._numbers import check_nonnegative
from mmb._renamed import renamed_arguments
from mmb.auc.labels import Labels
from mmb.auc.margin_objective import MarginObjective
from mmb.auc.parts.autograd import Gradients
from mmb.auc.parts.weighted_scores import WeightedScores
from mmb.auc.score_objective import Transform


class MinMaxAUC(MarginObjective):
    r"""AUC of every task, by its min-max form.

    The pairwise square loss $E_{+-}[(c - h_+ + h_-)^2]$ of task `k` equals
    $\min_{a,b} \max_{\alpha} L_k$, with

    $$
    L_k = E_+[(h-a)^2] + E_-[(h-b)^2] + 2 \alpha\,(c + E_-[h] - E_+[h]) - \alpha^2,
    \qquad \alpha \ge 0,
    $$

    which needs no pairs. `a` and `b` (the class means) are parameters, moved by your optimizer together
    with the model; the dual `alpha` is block state, moved here by projected gradient ascent:
    $\alpha \leftarrow [\alpha + \text{lr\_dual} \cdot 2 (c + E_-[h] - E_+[h] - \alpha)]_+$.

    Args:
        labels: The training labels.
        margin: `c`.
        transform: `"sigmoid"`; `"logit"`; or `"recentered"`: $h = \mathrm{sigmoid}(s - \log(n_+ / n_-))$ with
            the task's numbers of positives and negatives. A model trained with cross-entropy gives nearly all
            rows of a rare task a sigmoid near zero, where it is flat; recentered, its scores are spread about
            one half, and training continues from there. AUC is the same.
        lr_dual: Step size of the dual; 0.5 would replace it by the batch's own optimum.
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].
        anchor: Weight of cross-entropy after `warm_start`, when training continues from trained weights;
            0 for none. See [`Anchor`][mmb.auc.parts.anchor.Anchor].
    """

    @renamed_arguments(scores="transform")
    def __init__(
        self,
        labels: Labels | Tensor,
        *,
        margin: float = 1.0,
        transform: Transform = "sigmoid",
        lr_dual: float = 0.1,
        task_weighting: float = 0.0,
        anchor: float = 2.0,
    ) -> None:
        super().__init__(labels, margin, transform, lr_dual, task_weighting)
        check_nonnegative(anchor=anchor)
        self.anchor = anchor

    def project_dual(self, dual: Tensor) -> Tensor:
        """The dual is not negative."""
        return dual.clamp(min=0)

    def estimate(self, entries: WeightedScores) -> tuple[Tensor, Gradients]:
        """$L_k$ averaged over the tasks of the batch, at the dual before its step."""
        score, slope = self.squash(entries)
        terms = self.margin_terms(entries, score, entries.negative)
        return self.conclude(entries, terms, terms.d_score * slope)

    @torch.no_grad()
    def warm_start(self, scores: Tensor, labels: Tensor) -> None:
        """Put means and dual at their optimum for these scores; tasks without labels here keep theirs."""
        super().warm_start(scores, labels)
        entries = self.entries(scores, labels).averaged()
        score = self.scores(entries)
        mean_positive, mean_negative = (entries.positive * score).sum(0), (entries.negative * score).sum(0)
        self.place(mean_positive, mean_negative)
