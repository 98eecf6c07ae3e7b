"""NDCG: the gain of positives discounted by their ranks, of all rows or of the first `k` (SONG, K-SONG)."""

import math

import torch
from torch import Tensor

from mmb._numbers import check_choice, check_range, check_sizes
from mmb.auc.labels import Labels
from mmb.auc.parts.autograd import Gradients
from mmb.auc.parts.pairs import Pairs, Surrogate, pair_loss
from mmb.auc.parts.per_positive import PerPositive
from mmb.auc.parts.soft_quantiles import Gradient
from mmb.auc.parts.top_k import TopK, every_row
from mmb.auc.parts.weighted_scores import WeightedScores
from mmb.auc.per_positive_objective import PerPositiveObjective
from mmb.auc.score_objective import Transform


class NDCG(PerPositiveObjective):
    r"""Normalized discounted cumulative gain of every task, a ranking of its rows (Qiu et al., 2022).

    $$
    L_k = 1 - \frac{1}{Z} \sum_{i+} \frac{\psi(z_i - \lambda)}{\log_2(1 + N u_i)},
    \qquad u_i = E_j\Big[ \frac{\ell(c - h_i + h_j)}{\ell(c)} \Big],
    $$

    with the mean over all `N` labeled rows of the task, so that $N u_i$ is the soft rank of a positive: one
    for itself and one for each row above. $u_i$ is tracked for each positive, with weight $\gamma$ on that of
    the newest batch (the first visit sets it), and the estimate is at the new one. `Z` is the largest sum
    there can be.

    With `k`, only positives among the first `k` rows count: $\lambda$ is the threshold that `k` rows exceed,
    tracked as the lower level ([`TopK`][mmb.auc.parts.top_k.TopK]), and $\psi(s) =
    \text{sigmoid}(s / \text{temperature})$. Without, $\psi = 1$. Batches must carry `rows`.

    Args:
        labels: The training labels.
        k: How many of the first rows count; None is all.
        surrogate: $\ell$: `"squared_hinge"` or `"logistic"`.
        margin: `c`.
        transform: What the loss compares; see [`MinMaxAUC`][mmb.auc.minmax.MinMaxAUC].
        gradient: With `k`: `"full"` is the hypergradient, through the selection and its threshold;
            `"practical"` holds them fixed.
        beta: $\gamma$ in (0, 1], the weight of the newest batch; also that of the tracked Hessian.
        lr_threshold: Step size of the thresholds, in logits, for a batch without a row above.
        temperature: Of the selection, in logits.
        tau1: Smoothing of the threshold, in logits.
        tau2: Strong convexity of its problem.
        task_weighting: See [`Objective`][mmb.auc.objective.Objective].
    """

    per_ideal: Tensor

    def __init__(
        self,
        labels: Labels | Tensor,
        *,
        k: int | None = None,
        surrogate: Surrogate = "squared_hinge",
        margin: float = 1.0,
        transform: Transform = "sigmoid",
        gradient: Gradient = "practical",
        beta: float = 0.1,
        lr_threshold: float = 0.1,
        temperature: float = 1.0,
        tau1: float = 0.5,
        tau2: float = 1e-4,
        task_weighting: float = 0.0,
    ) -> None:
        labels = labels if isinstance(labels, Labels) else Labels(labels)
        super().__init__(labels, margin, transform, task_weighting)
        check_choice(Surrogate, surrogate=surrogate)
        check_choice(Gradient, gradient=gradient)
        check_sizes(k=k)
        check_range("(0, 1]", beta=beta)
        self.surrogate, self.gradient, self.beta = surrogate, gradient, beta
        self.own_loss = float(pair_loss(torch.tensor(margin, dtype=torch.float64), surrogate)[0])
        self.rank_share = PerPositive(labels, self.task_weight, start=0.0)  # u; unseen at zero
        counts = labels.positives.clamp(min=1)
        most = max([1, *counts.tolist()]) if k is None else k
        discounts = 1 / torch.log2(torch.arange(2, most + 2, device=counts.device).double())
        ideal = discounts.cumsum(0)[counts.clamp(max=most) - 1]
        self.register_buffer("per_ideal", (counts / ideal).to(self.task_weight.dtype), persistent=False)
        self.top: TopK | None = None
        if k is not None:
            self.top = TopK(
                k,
                self.positives + self.negatives,
                lr=lr_threshold,
                beta=beta,
                temperature=temperature,
                tau1=tau1,
                tau2=tau2,
            )

    def estimate(self, entries: WeightedScores) -> tuple[Tensor, Gradients]:
        """$L_k$ averaged over the tasks of the batch, at the thresholds before their step."""
        pairs = Pairs.of(entries, self.capacity)
        slots = self.rank_share.find(entries, pairs)
        score, slope = self.squash(entries)
        losses = pairs.losses(score, self.margin, self.surrogate, itself=False, spread=self.spread)
        labeled = entries.gather(self.positives + self.negatives)
        every = every_row(entries, entries.gather(self.positives) / labeled)
        labeled = pairs.of_task(labeled)
        others, d_others = losses.of_positives(every.negative)
        now = others / self.own_loss + 1 / labeled
        old = self.rank_share.read(slots)
        new = torch.where(old > 0, torch.lerp(old.to(now.dtype), now, self.beta), now)
        met = pairs.of_task(entries.sampled) & pairs.known
        if self.training:
            self.rank_share.store(slots, old, new, met)
        log_rank = torch.log1p(labeled * new)
        share = torch.where(met, pairs.weight * pairs.of_task(entries.scale), 0.0)
        gain = pairs.of_task(entries.gather(self.per_ideal)) * math.log(2) / log_rank
        psi, d_logits = self._among_first(entries, every, pairs, share * gain)
        value = (share * (1 - psi * gain)).sum()
        d_share = share * psi * gain * labeled / (log_rank * (1 + labeled * new) * self.own_loss)
        d_score = pairs.less_own(every.negative * losses.slope_of_entries(d_share), d_share * d_others)
        value, [(logits, by_score)] = self.held(entries, value, d_score, slope)
        return value, [(logits, by_score if d_logits is None else by_score + d_logits)]

    def _among_first(
        self, entries: WeightedScores, every: WeightedScores, pairs: Pairs, gain: Tensor
    ) -> tuple[Tensor | float, Tensor | None]:
        """`psi` of the positives, `[e]`, the derivative by logits through it, if any; moves thresholds."""
        if self.top is None:
            return 1.0, None
        tracking = self.top.look(every, entries.logits)
        psi = pairs.own(tracking.phi[0])
        d_logits: Tensor | None = None
        if self.gradient == "full":
            push = gain * psi * (1 - psi) / self.top.temperature  # how a higher score raises the sum
            of_task = torch.zeros_like(entries.scale).index_add_(0, pairs.columns, push)
            through = tracking.bell[0] * (of_task / (self.top.tau1 * tracking.hessian[0]))
            d_logits = through.index_put((pairs.rows, pairs.columns), -push, accumulate=True)
        if self.training:
            self.top.step(every, tracking)
        return psi, d_logits

    @torch.no_grad()
    def warm_start(self, scores: Tensor, labels: Tensor) -> None:
        """Put the thresholds at their optimum; tasks without labels here keep theirs."""
        if self.top is not None:
            entries = self.entries(scores, labels)
            every = every_row(entries, self.positives / (self.positives + self.negatives))
            self.top.warm_start(every, entries.logits)

    @torch.no_grad()
    def diagnostics(self) -> dict[str, Tensor]:
        """With `k`, `threshold`: mean over the trained tasks, a logit."""
        return {} if self.top is None else {"threshold": self.task_mean(self.top.value[:, 0])}
