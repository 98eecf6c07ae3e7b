"""The estimator on data whose answer is known, and next to scikit-learn."""

import math
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from estimators.tables import SMALL, TINY, binary, many
from mmb.estimators import MultiTaskAUCClassifier
from mmb.estimators.calibration import Calibration
from mmb.estimators.network import Network


def test_weights_decide_between_contradictions():
    """Two sources that disagree: the ranking follows the one with weight."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((600, 2))
    y = np.where(np.arange(600) < 300, x[:, 0] > 0, x[:, 0] < 0).astype(int)
    first = np.where(np.arange(600) < 300, 1.0, 0.01)
    up = MultiTaskAUCClassifier(**SMALL).fit(x, y, sample_weight=first)
    down = MultiTaskAUCClassifier(**SMALL).fit(x, y, sample_weight=1.01 - first)
    assert np.corrcoef(up.decision_function(x), x[:, 0])[0, 1] > 0.7
    assert np.corrcoef(down.decision_function(x), x[:, 0])[0, 1] < -0.7


def test_rows_of_weight_zero_do_not_count():
    x, y = binary(300)
    weights = np.ones(300)
    weights[200:] = 0
    x[200:] *= 100
    weighted = MultiTaskAUCClassifier(**TINY).fit(x, y, sample_weight=weights)
    short = MultiTaskAUCClassifier(**TINY).fit(x[:200], y[:200])
    np.testing.assert_array_equal(weighted.decision_function(x), short.decision_function(x))


def test_parts_one_after_the_other():
    x, y = binary(1200)
    model = MultiTaskAUCClassifier(hidden=(8,), batch_size=32, lr=1e-2, networks=2, random_state=0)
    scores = []
    for _ in range(3):
        for start in range(0, 800, 200):
            model.partial_fit(x[start : start + 200], y[start : start + 200], classes=[0, 1])
        scores.append(model.score(x[800:], y[800:]))
    whole = MultiTaskAUCClassifier(**SMALL).fit(x[:800], y[:800]).score(x[800:], y[800:])
    assert scores[-1] > whole - 0.06
    assert scores[-1] > scores[0]
    rate = model.predict(x[800:])[y[800:] == 0].mean()
    assert 0.02 < rate < 0.2


def test_a_part_may_lack_a_class():
    x, y = binary(400)
    order = np.argsort(y, kind="stable")
    model = MultiTaskAUCClassifier(**TINY)
    for part in np.array_split(order, 4):  # the first ones without a positive
        model.partial_fit(x[part], y[part], classes=[0, 1])
    assert model.classes_.tolist() == [0, 1]
    assert model.predict(x).shape == (400,)


def test_every_part_may_lack_a_class():
    x, y = load_breast_cancer(return_X_y=True)
    parts = [np.flatnonzero(y == value) for value in (0, 1)]
    model = MultiTaskAUCClassifier(hidden=(16,), networks=1, random_state=0)
    for _ in range(2):
        for rows in (part[start::4] for start in range(4) for part in parts):
            model.partial_fit(x[rows], y[rows], classes=[0, 1])
    assert model.score(x, y) > 0.8


def test_more_of_the_same_after_a_fit():
    x, y = many(400, tasks=3)
    model = MultiTaskAUCClassifier(**TINY).fit(x[:300], y[:300])
    before = model.decision_function(x)
    model.partial_fit(x[300:], y[300:])
    assert not np.array_equal(before, model.decision_function(x))
    with pytest.raises(ValueError, match=r"y: .*3 tasks"):
        model.partial_fit(x, y[:, :2])
    with pytest.raises(ValueError, match=r"classes: .*partial_fit"):
        MultiTaskAUCClassifier().partial_fit(x, y[:, 0])


@pytest.fixture(scope="module")
def fitted():
    x, y = binary()
    return MultiTaskAUCClassifier(**SMALL).fit(x[:400], y[:400]), x[400:], y[400:]


@pytest.fixture(scope="module")
def fitted_many():
    x, y = many()
    return MultiTaskAUCClassifier(**SMALL).fit(x[:600], y[:600]), x[600:], y[600:]


@pytest.mark.parametrize("objective", ["soup", "ce", "auc", "ce+auc", "pauc", "pauc-pairwise"])
def test_every_objective_learns(objective):
    x, y = binary(rate=0.1)
    model = MultiTaskAUCClassifier(objective, **SMALL).fit(x[:400], y[:400])
    linear = LogisticRegression().fit(x[:400], y[:400])
    own = roc_auc_score(y[400:], model.decision_function(x[400:]), max_fpr=0.1)
    assert own > roc_auc_score(y[400:], linear.decision_function(x[400:]), max_fpr=0.1) - 0.02
    assert own == pytest.approx(model.score(x[400:], y[400:]))


def test_score_leaves_gaps_and_tasks_without_a_class_out(fitted_many):
    model, x, y = fitted_many
    y = y.copy()
    y[:, 3] = np.where(y[:, 3] == 1, -1, y[:, 3])
    decision = model.decision_function(x)
    parts = [roc_auc_score(y[y[:, k] >= 0, k], decision[y[:, k] >= 0, k], max_fpr=0.1) for k in range(3)]
    assert model.score(x, y) == pytest.approx(np.mean(parts))
    assert np.mean(parts) > 0.6


def test_predict_keeps_the_false_positive_rate():
    """On new rows the rate is `max_fpr` up to the noise of placing it by 1,350 held-out negatives."""
    x, y = make_classification(4000, 8, n_informative=4, weights=[0.9], class_sep=0.5, random_state=3)
    model = MultiTaskAUCClassifier(max_fpr=0.2, **SMALL).fit(x[:1500], y[:1500])
    called = model.predict(x[1500:])
    rate = called[y[1500:] == 0].mean()
    assert abs(rate - 0.2) < 3 * math.sqrt(0.2 * 0.8 * (1 / 1300 + 1 / 2200))
    assert called[y[1500:] == 1].mean() > 0.35


def test_outputs_agree(fitted, fitted_many):
    model, x, _ = fitted
    decision, probability = model.decision_function(x), model.predict_proba(x)
    assert decision.shape == (len(x),)
    np.testing.assert_allclose(probability.sum(1), 1)
    np.testing.assert_array_equal(decision > 0, model.predict(x))
    np.testing.assert_array_equal(decision > 0, probability[:, 1] > model.thresholds_[0])
    model, x, y = fitted_many
    decision, probability = model.decision_function(x), model.predict_proba(x)
    assert decision.shape == probability.shape == y.shape
    np.testing.assert_array_equal(decision > 0, model.predict(x))
    np.testing.assert_array_equal(decision > 0, probability > model.thresholds_)
    assert np.ptp(model.thresholds_) > 0


def test_a_given_threshold(fitted):
    _, x, _ = fitted
    train_x, train_y = binary()
    model = MultiTaskAUCClassifier(threshold=0.3, **TINY).fit(train_x[:400], train_y[:400])
    np.testing.assert_array_equal(model.predict(x) == 1, model.predict_proba(x)[:, 1] > 0.3)


@pytest.mark.parametrize("objective", ["ce", "pauc"])
def test_probabilities_are_calibrated(objective):
    """No worse in log loss than logistic regression on data for which that is the right model."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((5000, 3))
    y = generator.random(5000) < 1 / (1 + np.exp(2 - x @ [1.5, -1.0, 0.5]))
    model = MultiTaskAUCClassifier(objective, **SMALL).fit(x[:3000], y[:3000])
    best = LogisticRegression().fit(x[:3000], y[:3000])
    own, reference = (log_loss(y[3000:], m.predict_proba(x[3000:])) for m in (model, best))
    assert own < reference + 0.02


@pytest.mark.parametrize(("rows", "columns", "rate", "seed"), [(90, 2000, 0.2, 1), (60, 200, 0.3, 0)])
def test_probabilities_of_few_rows_are_cautious(rows, columns, rate, seed):
    """With more columns than rows there is little to know: about as good as the base rate, or better."""
    x, y = make_classification(1000 + rows, columns, n_informative=20, weights=[1 - rate], random_state=seed)
    options = {"hidden": (16,), "steps": 60, "random_state": 0}
    model = MultiTaskAUCClassifier("ce", **options).fit(x[:rows], y[:rows])
    base = log_loss(y[rows:], np.full(1000, y[:rows].mean()))
    assert log_loss(y[rows:], model.predict_proba(x[rows:])) < base + 0.03


def test_many_classes_are_one_against_the_rest():
    x, y = make_classification(600, 8, n_informative=5, n_classes=3, class_sep=1.5, random_state=0)
    names = np.array(["a", "b", "c"])[y]
    model = MultiTaskAUCClassifier(**SMALL).fit(x[:400], names[:400])
    assert model.decision_function(x).shape == model.predict_proba(x).shape == (600, 3)
    np.testing.assert_allclose(model.predict_proba(x).sum(1), 1)
    np.testing.assert_array_equal(model.predict(x), model.classes_[model.predict_proba(x).argmax(1)])
    assert (model.predict(x[400:]) == names[400:]).mean() > 0.8


def test_a_task_with_one_class_is_constant():
    x, y = many(300, missing_rate=0.0)
    y = y.copy()
    y[:, 1], y[:, 2] = 0, 1
    with pytest.warns(UserWarning, match=r"2 of 4 tasks .*\[1, 2\]"):
        model = MultiTaskAUCClassifier(**TINY).fit(x, y)
    probability = model.predict_proba(x)
    assert (np.ptp(probability, axis=0) == 0).tolist() == [False, True, True, False]
    assert probability[0, 1] < 0.01
    assert probability[0, 2] > 0.99
    assert model.predict(x)[:, 1:3].mean(0).tolist() == [0, 1]


@pytest.mark.parametrize("threshold", [None, 0.01])
def test_one_class_is_predicted_whatever_the_threshold(threshold):
    with pytest.warns(UserWarning, match="1 of 1 tasks") as found:
        model = MultiTaskAUCClassifier(threshold=threshold, **TINY).fit(np.eye(5), np.full(5, "only"))
    assert found[0].filename == __file__  # the line that calls `fit`
    assert model.predict(np.eye(5)).tolist() == ["only"] * 5
    assert model.predict_proba(np.eye(5)).tolist() == [[1.0]] * 5


def test_one_network_keeps_the_rate_by_rows_it_was_trained_without():
    """Noise that can be learned by heart: the cut is where new negatives are, not those of training."""
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((1400, 200)), generator.random(1400) < 0.3
    model = MultiTaskAUCClassifier("ce", **SMALL | {"networks": 1}).fit(x[:400], y[:400])
    assert model.predict(x[400:])[~y[400:]].mean() < 0.25
    assert log_loss(y[400:], model.predict_proba(x[400:])) < 0.7  # the base rate gives 0.61
    assert math.isfinite(model.validation_score_)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_fits_inside_no_grad_and_inference_mode(mode):
    x, y = binary(100)
    options = TINY
    with mode():
        model = MultiTaskAUCClassifier(**options).fit(x, y).partial_fit(x, y)
    plain = MultiTaskAUCClassifier(**options).fit(x, y).partial_fit(x, y)
    np.testing.assert_array_equal(model.decision_function(x), plain.decision_function(x))
    model.partial_fit(x, y)


def test_another_default_device_does_not_matter():
    x, y = binary(100)
    plain = MultiTaskAUCClassifier(**TINY).fit(x, y)
    torch.set_default_device("meta")  # tensors without values: anything that lands there fails
    try:
        model = MultiTaskAUCClassifier(**TINY).fit(x, y)
        np.testing.assert_array_equal(model.predict_proba(x), plain.predict_proba(x))
        assert model.score(x, y) == plain.score(x, y)
        model.promise(x, y)
        model.partial_fit(x, y)
    finally:
        torch.set_default_device(None)


def test_training_is_not_slowed_down_by_a_device_context(monkeypatch):
    found, train = [], Network.train

    def watched(self, *given, **options):
        found.append(torch.overrides._len_torch_function_stack())
        train(self, *given, **options)

    monkeypatch.setattr(Network, "train", watched)
    MultiTaskAUCClassifier(**TINY).fit(*binary(100))
    assert {*found} == {0}


@pytest.mark.parametrize("objective", ["soup", "ce", "auc", "ce+auc", "pauc", "pauc-pairwise"])
def test_fits_with_float64_as_default(objective):
    x, y = binary(100)
    torch.set_default_dtype(torch.float64)
    try:
        model = MultiTaskAUCClassifier(objective, **SMALL | {"steps": 40}).fit(x, y).partial_fit(x, y)
        assert model.score(x, y) > 0.6
    finally:
        torch.set_default_dtype(torch.float32)


def test_random_state_decides_everything():
    x, y = binary(200)
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = MultiTaskAUCClassifier(**TINY).fit(x, y).decision_function(x)
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
    torch.rand(3)
    np.testing.assert_array_equal(first, MultiTaskAUCClassifier(**TINY).fit(x, y).decision_function(x))
    other = MultiTaskAUCClassifier(**TINY | {"random_state": 1}).fit(x, y).decision_function(x)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_fit_that_is_interrupted_changes_nothing(monkeypatch, method):
    def interrupt(*_):
        raise KeyboardInterrupt

    x, y = binary(300)
    fresh, fitted = MultiTaskAUCClassifier(**TINY), MultiTaskAUCClassifier(**TINY).fit(x, y)
    before = fitted.decision_function(x)
    with monkeypatch.context() as patch:
        patch.setattr(Calibration, "fit", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fitted.fit(x[:, :2], y)
        with pytest.raises(KeyboardInterrupt):
            getattr(fresh, method)(x, y, **({"classes": [0, 1]} if method == "partial_fit" else {}))
    with pytest.raises(NotFittedError):
        fresh.predict(x)
    np.testing.assert_array_equal(fitted.decision_function(x), before)


def test_clone_and_pickle(fitted):
    model, x, _ = fitted
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(model.predict_proba(x), again.predict_proba(x))
    fresh = clone(model)
    assert fresh.get_params() == model.get_params()
    assert not hasattr(fresh, "classes_")


def test_pipeline_cross_validation_and_grid_search():
    x, y = many(300, tasks=2)
    pipeline = make_pipeline(MinMaxScaler(), MultiTaskAUCClassifier(**SMALL | {"steps": 30, "networks": 1}))
    scores = cross_val_score(pipeline, x, y, cv=2)
    assert (scores > 0.5).all()
    grid = GridSearchCV(pipeline, {"multitaskaucclassifier__objective": ["ce", "pauc"]}, cv=2).fit(x, y)
    assert set(grid.cv_results_["param_multitaskaucclassifier__objective"]) == {"ce", "pauc"}
    x, y = binary(300)
    assert cross_val_score(pipeline, x, y, cv=2, scoring="roc_auc").min() > 0.8


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_only_ratios_of_weights_count(size):
    x, y = binary(80)
    plain, scaled = (
        MultiTaskAUCClassifier(**TINY).fit(x, y, sample_weight=np.full(len(y), weight))
        for weight in (1, size)
    )
    np.testing.assert_allclose(scaled.decision_function(x), plain.decision_function(x))


@pytest.mark.parametrize("seed", range(2))
def test_the_rate_is_kept_where_scores_are_equal(seed):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, 600)
    y = rng.random(600) < np.array([0.02, 0.05, 0.3])[kind]
    model = MultiTaskAUCClassifier(max_fpr=0.1, **{**SMALL, "random_state": seed}).fit(np.eye(3)[kind], y)
    assert model.predict(np.eye(3)[kind])[~y].mean() <= 0.1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("objective", "nonsense"),
        ("max_fpr", 0.0),
        ("hidden", (0,)),
        ("hidden", 64),
        ("dropout", 1.0),
        ("lr", 0.0),
        ("alpha", -1.0),
        ("batch_size", 0),
        ("steps", 0),
        ("networks", 0),
        ("trees", 3),
        ("threshold", 1.0),
        *((name, "x") for name in ("max_fpr", "dropout", "lr", "alpha", "batch_size", "steps", "networks")),
        *((name, 2.5) for name in ("batch_size", "steps", "networks")),
        *((name, math.inf) for name in ("lr", "alpha")),
        ("hidden", (2.5,)),
        ("threshold", "x"),
        ("max_fpr", None),
        ("objective", ["ce"]),
    ],
)
def test_bad_parameters_are_named(name, value):
    with pytest.raises(ValueError, match=f"^{name}: expected .*, got "):
        MultiTaskAUCClassifier(**{name: value}).fit(np.eye(4), [0, 1, 0, 1])


def test_promised_rates_are_kept_on_new_rows():
    x, y = binary(3000)
    model = MultiTaskAUCClassifier(**TINY).fit(x[:300], y[:300])
    kept = []
    for start in range(300, 1500, 60):
        found = model.promise(x[start : start + 60], y[start : start + 60], max_fpr=0.2, confidence=0.8)
        kept.append(model.predict(x[1500:])[y[1500:] == 0].mean() <= 0.2)
        assert model.thresholds_ == pytest.approx(found.threshold.sigmoid().numpy())
    assert sum(kept) >= 14  # of 20, of which 16 are expected; 13 or fewer in 1 of 11 cases, at worst
    model.promise(x[300:1500], y[300:1500], min_tpr=0.7)
    assert model.predict(x[1500:])[y[1500:] == 1].mean() >= 0.65


def test_promises_need_enough_rows_and_tasks_of_two_classes():
    x, y = binary(300)
    model = MultiTaskAUCClassifier(**TINY).fit(x, np.column_stack([y, y]).astype(float))
    found = model.promise(x[:20], np.column_stack([y, y])[:20], max_fpr=0.1)
    assert found.threshold.isnan().all()
    assert not model.predict(x).any()
    several = MultiTaskAUCClassifier(**TINY).fit(x, y + (x[:, 0] > 1))
    with pytest.raises(ValueError, match="two classes"):
        several.promise(x, y)
