"""A scikit-learn classifier that maximizes the partial AUC of many tasks at once."""

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from mmb import metrics
from mmb._extras import require
from mmb.estimators.calibration import Calibration, spread_as_averaged
from mmb.estimators.ensemble import CONTROL, Ensemble
from mmb.estimators.frames import Columns
from mmb.estimators.inputs import Rows, Standardizer
from mmb.estimators.model_mix import PiecewiseLinear
from mmb.estimators.network import FRESH, Network, Part, class_mass
from mmb.estimators.parameters import check_parameters
from mmb.estimators.targets import Targets, read_targets
from mmb.estimators.weighted_auc import weighted_auc
from mmb.label_values import MISSING

BaseEstimator: Any = require("sklearn.base", extra="estimators").BaseEstimator
ClassifierMixin: Any = require("sklearn.base", extra="estimators").ClassifierMixin
_utils = require("sklearn.utils", extra="estimators")
_validation = require("sklearn.utils.validation", extra="estimators")
_sparse = require("scipy.sparse", extra="estimators")

Array = np.ndarray[Any, Any]
_P = ParamSpec("_P")
_Estimator = TypeVar("_Estimator")
_FEWEST_STEPS, _FEW_STEPS = 600, 1500  # of a fit with `steps=None`
_PASSES, _PASSES_IF_FEW = 15, 30
_TUNING, _TUNING_LR = 1 / 3, 0.1  # steps after cross-entropy and their size, relative to those by it
_BRANCH, _BRANCH_STEPS = "pauc", 1 / 6  # of a soup
_PARTIAL = "ce+auc"  # what a soup is trained for when data comes in parts
_FIRST_STEPS = 100  # by cross-entropy, when data comes in parts


@contextmanager
def _own_torch() -> Iterator[None]:
    """Gradients and tensors in main memory, whatever mode and default device the caller has set."""
    here = torch.get_default_device().type == "cpu"  # a context slows down every operation
    with torch.inference_mode(False), torch.enable_grad(), nullcontext() if here else torch.device("cpu"):
        yield


def _as_a_whole(
    method: Callable[Concatenate[_Estimator, _P], _Estimator],
) -> Callable[Concatenate[_Estimator, _P], _Estimator]:
    """Let a method change a copy, whose attributes the estimator takes at its end; and return the estimator.

    If it is interrupted, or fails, the estimator still is what it was, also if that is not fitted.
    """

    @wraps(method)
    def whole(self: _Estimator, /, *args: _P.args, **options: _P.kwargs) -> _Estimator:
        changed = copy.copy(self)
        method(changed, *args, **options)
        self.__dict__ = changed.__dict__
        return self

    return whole


class MultiTaskAUCClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Neural networks for rare events: one or many tasks, missing labels, few false alarms.

    It maximizes the area under each task's ROC curve up to a false positive rate. `predict` calls a row
    positive if its score is above the threshold at which that rate is reached, and `predict_proba` gives
    calibrated probabilities. It should work untuned. Inputs are standardized, with outliers leveled off. A
    few networks are averaged; each is trained without a different share of the rows, and those rows determine
    probabilities and thresholds. A network is several models side by side, weighted for each task by the
    held-out rows: a perceptron, a linear model, and three that see columns through cosines or through ranges
    between their quantiles. Trees, boosted and randomized, are grown without the same shares of the rows, and
    weighted with them.

    `y` may be:

    - `[n, m]` with 0, 1 and missing labels (NaN or -1): `m` tasks. Outputs are `[n, m]`, as with multi-label
      classifiers of scikit-learn such as `MLPClassifier`; `predict_proba` is that of the positive class.
    - `[n]` with two classes, strings or numbers, NaN or None for missing (also -1, next to 0 and 1): the
      second class in sorted order is the positive one. `predict_proba` is `[n, 2]`.
    - `[n]` with more classes: each against the rest. `predict` is the likeliest class; thresholds are not
      used.

    A task without positives or negatives cannot be learned: there is a warning, and its scores are constant.

    Args:
        objective: What to train for after cross-entropy: `"pauc"` (partial AUC up to `max_fpr`),
            `"pauc-pairwise"` (the same, by pairs), `"auc"` (the whole area), `"ce+auc"` (the sum of the whole
            area and cross-entropy), or `"ce"` for cross-entropy alone. The default, `"soup"`, tries more.
            First, networks are trained for partial AUC up to three times `max_fpr` from random weights (all
            of them only if the first is promising), and used if held-out rows prefer them. If not, a short
            branch for partial AUC follows cross-entropy, and its weights, or their average with those from
            cross-entropy, are used. Whatever is used must be better than cross-entropy beyond noise; if
            nothing is, the weights are those from cross-entropy.
        max_fpr: Largest false positive rate: of the partial AUC that is maximized and that `score` returns,
            and at which `predict` operates. In (0, 1].
        hidden: Widths of the hidden layers; empty for a linear model alone.
        dropout: Share of the hidden units dropped in training.
        lr: Step size of Adam.
        alpha: Strength of the squared penalty on the weights, relative to the summed loss of all labels, as
            in `MLPClassifier`: the more labels, the less it matters.
        batch_size: Rows per step.
        steps: Number of steps by cross-entropy, and of networks from random weights; None is thirty passes
            over the data, but at least 600, and at most 1,500 unless fifteen passes are more. An objective
            after cross-entropy gets a third as many, and the branch of a soup a sixth.
        networks: How many networks to train, each without a different share of the rows. Their scores are
            averaged, and the scores of the held-out rows determine probabilities and thresholds. A single
            network is trained without a quarter of the rows.
        trees: Whether trees join the networks. They do only in `fit`, if `X` is not sparse, columns times
            tasks are at most 1,024, and `hidden` is not empty. `partial_fit` leaves them as they are.
        threshold: Probability above which `predict` calls a row positive; None chooses one for each task, at
            `max_fpr`.
        random_state: Seed of all randomness; the global generators stay untouched.
        verbose: If not 0, `fit` prints what it does.

    Attributes:
        classes_: The classes, sorted; for `[n, m]` the numbers of the tasks.
        thresholds_: For each task the probability above which `predict` calls a row positive, `[m]`.
        objective_: What the weights were trained for last: `objective`, or `"ce"` if that did better.
        shares_: The share of each branch in the weights, by its objective; `"fresh"` for networks that were
            trained for partial AUC from random weights.
        validation_score_: The partial AUC of the rows that each network was trained without, averaged over
            tasks and networks; NaN if nothing could be held out.
        n_features_in_: Number of columns of `X`.
        feature_names_in_: Their names, if `X` has names.
    """

    classes_: Array

    def __init__(
        self,
        objective: str = "soup",
        *,
        max_fpr: float = 0.1,
        hidden: Sequence[int] = (256, 256),
        dropout: float = 0.25,
        lr: float = 5e-3,
        alpha: float = 10.0,
        batch_size: int = 128,
        steps: int | None = None,
        networks: int = 4,
        trees: bool = True,
        threshold: float | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.objective = objective
        self.max_fpr = max_fpr
        self.hidden = hidden
        self.dropout = dropout
        self.lr = lr
        self.alpha = alpha
        self.batch_size = batch_size
        self.steps = steps
        self.networks = networks
        self.trees = trees
        self.threshold = threshold
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.classifier_tags.multi_label = True
        return tags

    @_as_a_whole
    @_own_torch()
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train from the start.

        Args:
            X: `[n, d]`: array, data frame or sparse matrix. Missing values (NaN) are filled by the median, in
                a sparse matrix by zero. Columns of names in a frame of pandas or polars are one-hot encoded,
                and dates become days, as in the data set `table`; unknown names count as missing.
            y: `[n]` or `[n, m]`; see the class.
            sample_weight: Weight of each row, `[n]`, not negative.

        Returns:
            This estimator.

        Raises:
            ValueError: If a parameter is out of its range, or `X`, `y` and `sample_weight` do not fit.
        """
        check_parameters(self)
        x, labels, weights = self._read(X, y, sample_weight, None, fresh=True)
        part = self._start(x, labels, weights)
        mass = class_mass(labels, weights)
        if not bool((mass > 0).all()):
            names = (mass == 0).any(0).nonzero().squeeze(1).tolist()
            warnings.warn(
                f"y: {len(names)} of {labels.shape[1]} tasks have no positive or no negative and get "
                f"constant scores: {names[:20]}",
                stacklevel=4,  # the line that calls `fit`, past its decorators
            )
        steps = self.steps or _default_steps(math.ceil(len(labels) / self.batch_size))
        branches = self._branches()
        each = max(1, round((_BRANCH_STEPS if self.objective == "soup" else _TUNING) * steps))
        stages = [(steps, self.lr), (each, _TUNING_LR * self.lr)]
        self._say(f"{len(labels)} rows, {labels.shape[1]} tasks, {x.shape[1]} inputs")
        tuning = "".join(f", then {each} for {name}" for name in branches)
        self._say(f"{self.networks} networks, each {steps} steps by cross-entropy{tuning}")
        fresh = FRESH if self.objective == "soup" else None
        trees = bool(self.trees) and len(self.hidden) > 0
        found = self._ensemble.cross_fit(part, stages, branches, fresh, trees, self.batch_size, self._areas)
        self.shares_ = found.shares
        self.objective_ = CONTROL if found.shares.keys() == {CONTROL} else self.objective
        self.validation_score_ = float(found.values.nanmean())
        self._say(f"partial AUC of held-out rows {self.validation_score_:.4f}; average of {found.shares}")
        self._mass += mass
        self._calibration.fit(
            spread_as_averaged(found.logits, found.fold, labels, weights, found.unseen),
            spread_as_averaged(found.logits, found.fold, labels, weights),
            found.calibration_labels(labels),
            weights,
            self.max_fpr,
            self._mass,
        )
        self._place_thresholds(self._ensemble.scores(part.rows), labels, weights)
        return self

    @_as_a_whole
    @_own_torch()
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train on one more part of the data in one pass, after `fit` or after other parts.

        Without an earlier `fit`, the first hundred steps are by cross-entropy. Nothing is held out: the
        newest part determines probabilities and thresholds of those tasks for which it has both classes.

        Args:
            X: `[n, d]`.
            y: `[n]` or `[n, m]`; a part may lack classes.
            classes: All classes of a one-dimensional `y`; needed only in the first call.
            sample_weight: Weight of each row, `[n]`, not negative, relative to the other rows of this call:
                every part counts as its number of rows, whatever the sum of its weights.

        Returns:
            This estimator.

        Raises:
            ValueError: As `fit`; or if the first call has no `classes`.
        """
        check_parameters(self)
        first = not hasattr(self, "_ensemble")
        if first and classes is None and np.shape(y)[1:] in ((), (1,)):
            raise ValueError("classes: the first call of partial_fit needs all classes of y, got None")
        x, labels, weights = self._read(X, y, sample_weight, classes, fresh=first)
        if first:
            part = self._start(x, labels, weights)
            self.objective_, self.validation_score_ = self.objective, math.nan
            self.shares_ = {CONTROL: 1.0}
        else:
            self._standardizer.learn(x, weights.numpy())
            part = Part(Rows(x, self._standardizer), labels, weights)
        steps = math.ceil(len(labels) / self.batch_size)
        objective = _PARTIAL if self.objective == "soup" else self.objective
        self._ensemble.train(
            part, objective, steps=steps, first_steps=_FIRST_STEPS, batch_size=self.batch_size, lr=self.lr
        )
        if self._ensemble.networks[0].steps_done > _FIRST_STEPS:
            self.objective_ = self.objective
        self._mass += class_mass(labels, weights)
        scores = self._ensemble.scores(part.rows)
        self._calibration.fit(scores, scores, labels, weights, self.max_fpr, self._mass)
        self._place_thresholds(scores, labels, weights)
        return self

    @_own_torch()
    def promise(
        self,
        X: Any,
        y: Any,
        *,
        max_fpr: float | None = None,
        min_tpr: float | None = None,
        confidence: float = 0.95,
    ) -> metrics.OperatingPoints:
        """Set the thresholds of `predict` so that, for each task, new rows keep a rate with some confidence.

        Args:
            X: `[n, d]`, rows that were not in `fit`.
            y: `[n]` or `[n, m]`, as for `fit`.
            max_fpr: Largest false positive rate on new rows; by default that of the estimator.
            min_tpr: Instead of it, the smallest true positive rate on new rows.
            confidence: Probability that the promise is kept; see `mmb.metrics.operating_points`.

        Returns:
            Thresholds of log-odds, with the rates of these rows and exact intervals. A task with too few
            rows for the promise has NaN, and `predict` calls none of its rows positive.

        Raises:
            ValueError: If `y` does not fit or has more than two classes, or a number is out of its range.
        """
        odds = self._log_odds(X)
        if not self._multilabel and len(self.classes_) != 2:
            raise ValueError(f"y: expected tasks or two classes, got {len(self.classes_)} classes")
        labels = self._labels_of(y, len(odds))
        rate = self.max_fpr if max_fpr is None and min_tpr is None else max_fpr
        found = metrics.operating_points(odds, labels, max_fpr=rate, min_tpr=min_tpr, confidence=confidence)
        self._calibration.cut = found.threshold.nan_to_num(torch.inf)
        self.thresholds_ = self._calibration.cut.sigmoid().numpy()
        return found

    def decision_function(self, X: Any) -> Array:
        """Log-odds above the threshold: positive where `predict` says yes.

        Args:
            X: `[n, d]`.

        Returns:
            `[n]` for two classes, `[n, m]` for tasks; for more classes the log-odds of each, `[n, classes]`.
        """
        odds = self._log_odds(X)
        if self._multilabel or len(self.classes_) <= 2:
            odds = odds - self._calibration.cut
        found: Array = odds.numpy()
        return found if self._multilabel or len(self.classes_) > 2 else found[:, 0]

    def predict_proba(self, X: Any) -> Array:
        """Calibrated probabilities, in the order of `decision_function`.

        Args:
            X: `[n, d]`.

        Returns:
            `[n, classes]`; for tasks `[n, m]`, of the positive class.
        """
        found: Array = self._log_odds(X).sigmoid().numpy()
        if self._multilabel:
            return found
        if len(self.classes_) > 2:
            return np.asarray(found / found.sum(1, keepdims=True))
        return np.column_stack([1 - found[:, 0], found[:, 0]]) if len(self.classes_) == 2 else found * 0 + 1

    def predict(self, X: Any) -> Array:
        """Classes; for tasks 0 and 1, `[n, m]`. Where `decision_function` is above zero, or largest."""
        decision = self.decision_function(X)
        if self._multilabel:
            return (decision > 0).astype(np.int64)
        chosen = decision.argmax(1) if decision.ndim == 2 else (decision > 0).astype(np.int64)
        return np.asarray(self.classes_[np.minimum(chosen, len(self.classes_) - 1)])  # or the only class

    @_own_torch()
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The partial AUC up to `max_fpr`, from 0.5 (chance) to 1 (McClish), averaged over the tasks.

        It does not depend on `objective`, and labels may be missing. Each of more than two classes is a task.

        Args:
            X: `[n, d]`.
            y: `[n]` or `[n, m]`, as for `fit`.
            sample_weight: Weight of each row, `[n]`, not negative.

        Returns:
            The mean over the tasks with both classes in `y`; NaN if there are none.

        Raises:
            ValueError: If `y` does not fit.
        """
        decision = torch.as_tensor(self.decision_function(X))
        labels = self._labels_of(y, len(decision))
        scores = decision.reshape(len(labels), -1)
        if sample_weight is None:
            return float(self._areas(scores, labels).nanmean())
        weights = _validation._check_sample_weight(sample_weight, scores, ensure_non_negative=True)
        return weighted_auc(scores, labels, torch.as_tensor(weights), self.max_fpr)

    def _read(
        self, X: Any, y: Any, sample_weight: Any, classes: Any, fresh: bool
    ) -> tuple[Any, Tensor, Tensor]:
        """Rows with a weight and a label: inputs, labels `[n, m]`, weights `[n]` of mean one."""
        x = self._check_inputs(X, fresh)
        if y is not None:
            _validation.check_consistent_length(x, y)
        weights = _validation._check_sample_weight(sample_weight, x, ensure_non_negative=True)
        keep = weights > 0
        if not keep.any():
            raise ValueError("sample_weight: every weight is zero; at least one row needs a positive weight")
        known = np.unique(classes) if fresh and classes is not None else None if fresh else self.classes_
        targets = read_targets(y, known, keep)
        if fresh:
            self.classes_, self._multilabel = targets.classes, targets.multilabel
        else:
            self._check_known(targets)
        labeled = (targets.labels != MISSING).any(1)
        weights = weights[keep][labeled.numpy()]
        weights = weights / weights.max()  # which may be of any size
        return (
            x[keep][labeled.numpy()],
            targets.labels[labeled],
            torch.as_tensor(weights / weights.mean(), dtype=torch.float32),
        )

    def _labels_of(self, y: Any, num_rows: int) -> Tensor:
        """Labels `[n, m]` of the tasks or classes of `fit`."""
        targets = read_targets(y, None if self._multilabel else self.classes_)
        self._check_known(targets)
        if len(targets.labels) != num_rows:
            raise ValueError(f"X, y: expected as many rows of both, got {num_rows} and {len(targets.labels)}")
        return targets.labels

    def _check_known(self, targets: Targets) -> None:
        """Refuse targets with other tasks or classes than those of `fit`."""
        if targets.multilabel != self._multilabel or len(targets.classes) != len(self.classes_):
            before, now = (
                f"{len(classes)} tasks" if multilabel else f"one column of {len(classes)} classes"
                for classes, multilabel in (
                    (self.classes_, self._multilabel),
                    (targets.classes, targets.multilabel),
                )
            )
            raise ValueError(f"y: expected {before} as before, got {now}")

    def _start(self, x: Any, labels: Tensor, weights: Tensor) -> Part:
        """Forget what was learned: new networks for rows such as these, no calibration."""
        num_tasks = labels.shape[1]
        self._standardizer = Standardizer(_sparse.issparse(x))
        self._standardizer.learn(x, weights.numpy())
        part = Part(Rows(x, self._standardizer), labels, weights)
        seed = int(_utils.check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        options = {name: getattr(self, name) for name in ("max_fpr", "hidden", "dropout", "alpha")}
        objectives = dict.fromkeys(
            (CONTROL, *self._branches(), *([_PARTIAL, FRESH] if self.objective == "soup" else []))
        )
        encoding = PiecewiseLinear(part.rows.sample())
        make = partial(
            Network, x.shape[1], num_tasks, objectives=list(objectives), encoding=encoding, **options
        )
        self._ensemble = Ensemble(self.networks, seed, make)
        self._mass = torch.zeros(2, num_tasks, dtype=torch.float64)
        self._calibration = Calibration(num_tasks)
        return part

    def _place_thresholds(self, scores: Tensor, labels: Tensor, weights: Tensor) -> None:
        """Use the cuts of the calibration, raised if these scores `[n, m]` need it; or `threshold`."""
        self._calibration.raise_cut(scores, labels, weights, self.max_fpr)
        if self.threshold is not None:
            self._calibration.cut.fill_(math.log(self.threshold / (1 - self.threshold)))
        self.thresholds_ = self._calibration.cut.sigmoid().numpy()

    @_own_torch()
    def _log_odds(self, X: Any) -> Tensor:
        """Calibrated log-odds `[n, m]`."""
        _validation.check_is_fitted(self)
        x = self._check_inputs(X, fresh=False)
        return self._calibration(self._ensemble.scores(Rows(x, self._standardizer)))

    def _check_inputs(self, X: Any, fresh: bool) -> Any:
        """`X` as an array or a sparse matrix of compressed rows, its columns as in `fit` unless fresh."""
        if fresh:
            self._columns = Columns()
        return self._columns.read(self, X, fresh)

    def _say(self, text: str) -> None:
        if self.verbose:
            print(f"MultiTaskAUCClassifier: {text}")  # as scikit-learn's own estimators do

    def _areas(self, scores: Tensor, labels: Tensor) -> Tensor:
        return metrics.roc_auc(scores, labels, self.max_fpr)

    def _branches(self) -> tuple[str, ...]:
        """Objectives of the branches that follow cross-entropy; none if it is all there is."""
        if self.objective == "soup":
            return (_BRANCH,)
        return () if self.objective == CONTROL else (self.objective,)


def _default_steps(per_pass: int) -> int:
    """Small tables take more passes: averages of penalized networks do not overfit them."""
    few = min(_PASSES_IF_FEW * per_pass, _FEW_STEPS)
    return max(_PASSES * per_pass, few, _FEWEST_STEPS)
