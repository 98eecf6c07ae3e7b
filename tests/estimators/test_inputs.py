"""Kinds of input: sparse matrices, data frames, weights, parts of the data one after the other."""

import numpy as np
import pandas
import polars
import pytest
import scipy.sparse
import torch
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.preprocessing import StandardScaler

from mmb.auc import CrossEntropy, DenseBatch, PartialAUC
from mmb.data.sets import synthetic
from mmb.estimators import MultiTaskAUCClassifier
from mmb.estimators.encoding import PiecewiseLinear
from mmb.estimators.inputs import Rows, Standardiser
from mmb.estimators.network import Network
from mmb.estimators.targets import read_targets

SMALL = {"hidden": (16,), "lr": 2e-2, "steps": 150, "networks": 2, "random_state": 0}


def binary(rows=600, seed=0):
    return make_classification(rows, 8, n_informative=4, weights=[0.8], class_sep=1.5, random_state=seed)


def many(rows=400, tasks=3):
    data = synthetic.load(rows=rows, tasks=tasks, positive_rate=0.1, missing_rate=0.2)
    return data.inputs.double().numpy(), data.labels.numpy()


def standardised(x):
    standardise = Standardiser(sparse=False)
    standardise.learn(x, np.ones(len(x)))
    return standardise(x, torch.float64).numpy()


def test_standardised_inputs_keep_their_order():
    generator = np.random.default_rng(0)
    x = np.column_stack([generator.uniform(3, 9, 500), generator.random(500) < 0.1, np.full(500, 7.0)])
    found = standardised(x)
    assert (found[:, 2] == 0).all()  # a constant column
    u = StandardScaler().fit_transform(x)
    np.testing.assert_allclose(found, u / np.sqrt(1 + u**2 / 16), atol=1e-12)


def test_tails_do_not_narrow_the_bulk():
    """A column with tails lies as the normal one within it does, give or take the shape of its bulk."""
    normal = np.random.default_rng(0).standard_normal((2000, 1))
    for x in (normal, 1e6 * np.sinh(3 * normal), normal**5 - 3):
        found = standardised(x)
        assert np.abs(found).max() < 4
        assert (np.diff(found[normal[:, 0].argsort(), 0]) > 0).all()
        low, middle, high = np.quantile(found, [0.25, 0.5, 0.75])
        assert abs(middle) < 0.05
        assert high - low == pytest.approx(1.33, abs=0.03)


def test_zeros_of_sparse_rows_stay_zeros():
    x = scipy.sparse.random_array((200, 30), density=0.05, rng=np.random.default_rng(0), format="csr")
    standardise = Standardiser(sparse=True)
    standardise.learn(x, np.ones(200))
    rows = Rows(x, standardise)
    np.testing.assert_array_equal(rows.take(torch.arange(200)) != 0, x.toarray() != 0)


@pytest.mark.parametrize("form", [scipy.sparse.csr_array, scipy.sparse.csc_matrix, scipy.sparse.coo_array])
def test_sparse_rows(form):
    """Any sparse form will do, and what was learned from it applies to dense rows too."""
    generator = np.random.default_rng(0)
    x = (generator.random((400, 50)) < 0.1).astype(float)
    y = (x[:, :5].sum(1) > 0).astype(int)
    model = MultiTaskAUCClassifier(**SMALL).fit(form(x[:300]), y[:300])
    assert model.score(form(x[300:]), y[300:]) > 0.9
    np.testing.assert_allclose(model.decision_function(form(x)), model.decision_function(x))
    dense = MultiTaskAUCClassifier(**SMALL).fit(x[:300], y[:300])
    np.testing.assert_allclose(dense.decision_function(form(x)), dense.decision_function(x))


def test_sparse_labels():
    x, y = many()
    y = (y == 1).astype(int)
    dense, sparse = (MultiTaskAUCClassifier(**SMALL).fit(x, z) for z in (y, scipy.sparse.csr_array(y)))
    np.testing.assert_array_equal(dense.decision_function(x), sparse.decision_function(x))


@pytest.mark.parametrize("library", [pandas, polars])
def test_data_frames(library):
    """Frames give what arrays give; names of columns are kept and looked at; nulls are gaps."""
    x, y = many()
    columns = [f"x{j}" for j in range(x.shape[1])]
    frame = library.DataFrame({name: x[:, j] for j, name in enumerate(columns)})
    labels = library.DataFrame({f"y{k}": [None if v == -1 else int(v) for v in y[:, k]] for k in range(3)})
    if library is pandas:
        labels = labels.astype("Int64")
    plain = MultiTaskAUCClassifier(**SMALL).fit(x, y)
    model = MultiTaskAUCClassifier(**SMALL).fit(frame, labels)
    assert model.feature_names_in_.tolist() == columns
    np.testing.assert_array_equal(model.predict_proba(frame), plain.predict_proba(x))
    assert model.score(frame, labels) == plain.score(x, y)
    assert isinstance(model.predict(frame), np.ndarray)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[columns[::-1]])


@pytest.mark.parametrize("library", [pandas, polars])
def test_series_of_strings(library):
    x, y = binary(300)
    names = library.Series(["ill" if v else "well" for v in y])
    model = MultiTaskAUCClassifier(**SMALL).fit(library.DataFrame(x), names)
    assert model.classes_.tolist() == ["ill", "well"]
    assert model.score(library.DataFrame(x), names) > 0.8


def make(x, objective, max_fpr):
    encoding = PiecewiseLinear(torch.as_tensor(x))
    options = {"hidden": (8,), "dropout": 0.0, "alpha": 0.0, "encoding": encoding}
    return Network(x.shape[1], 3, objective=objective, max_fpr=max_fpr, **options)


@pytest.mark.parametrize("objective", ["ce", "pauc"])
def test_a_weight_is_a_repetition(objective):
    """The loss of all rows at once, and so its gradient, is the same for weights and for repeated rows."""
    x, y = many(60)
    labels, times = torch.as_tensor(y), torch.randint(1, 4, (60,), generator=torch.Generator().manual_seed(0))
    repeated = torch.arange(60).repeat_interleave(times)
    losses = []
    for rows, weights in ((torch.arange(60), times.float()), (repeated, torch.ones(len(repeated)))):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            network = make(x, objective, max_fpr=0.3)
        network.see(labels[rows], weights / weights.mean())
        every = labels[rows].repeat(1, network.kinds)
        batch = DenseBatch(torch.as_tensor(x)[rows].float(), every, weights / weights.mean())
        losses.append(float(network.objective.backward(network.model, batch)["loss"]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_without_weights_objectives_see_what_they_would_see_themselves():
    x, y = many(60)
    labels, inputs = torch.as_tensor(y), torch.as_tensor(x).float()
    for name, kind, options in (("ce", CrossEntropy, {}), ("pauc", PartialAUC, {"max_fpr": 0.2})):
        network = make(x, name, max_fpr=0.2)
        network.see(labels, torch.ones(60))
        every = labels.repeat(1, network.kinds)
        own, usual = (
            o.backward(network.model, DenseBatch(inputs, every))
            for o in (network.objective, kind(every, **options))
        )
        assert float(own["loss"]) == pytest.approx(float(usual["loss"]), rel=1e-6)


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


def test_rows_of_weight_zero_are_not_there():
    x, y = binary(300)
    weights = np.ones(300)
    weights[200:] = 0
    x[200:] *= 100
    weighted = MultiTaskAUCClassifier(**SMALL).fit(x, y, sample_weight=weights)
    short = MultiTaskAUCClassifier(**SMALL).fit(x[:200], y[:200])
    np.testing.assert_array_equal(weighted.decision_function(x), short.decision_function(x))


def test_parts_one_after_the_other():
    x, y = binary(2000)
    model = MultiTaskAUCClassifier(hidden=(16,), batch_size=32, lr=1e-2, networks=2, random_state=0)
    scores = []
    for _ in range(6):
        for start in range(0, 1500, 300):
            model.partial_fit(x[start : start + 300], y[start : start + 300], classes=[0, 1])
        scores.append(model.score(x[1500:], y[1500:]))
    whole = MultiTaskAUCClassifier(**SMALL).fit(x[:1500], y[:1500]).score(x[1500:], y[1500:])
    assert scores[-1] > whole - 0.06
    assert scores[-1] > scores[0]
    rate = model.predict(x[1500:])[y[1500:] == 0].mean()
    assert 0.02 < rate < 0.2


def test_a_part_may_lack_a_class():
    x, y = binary(400)
    order = np.argsort(y, kind="stable")
    model = MultiTaskAUCClassifier(**SMALL)
    for part in np.array_split(order, 4):  # the first ones without a positive
        model.partial_fit(x[part], y[part], classes=[0, 1])
    assert model.classes_.tolist() == [0, 1]
    assert model.predict(x).shape == (400,)


def test_every_part_may_lack_a_class():
    x, y = load_breast_cancer(return_X_y=True)
    parts = [np.flatnonzero(y == value) for value in (0, 1)]
    model = MultiTaskAUCClassifier(hidden=(16,), networks=1, random_state=0)
    for _ in range(5):
        for rows in (part[start::4] for start in range(4) for part in parts):
            model.partial_fit(x[rows], y[rows], classes=[0, 1])
    assert model.score(x, y) > 0.8


def test_more_of_the_same_after_a_fit():
    x, y = many()
    model = MultiTaskAUCClassifier(**SMALL).fit(x[:300], y[:300])
    before = model.decision_function(x)
    model.partial_fit(x[300:], y[300:])
    assert not np.array_equal(before, model.decision_function(x))
    with pytest.raises(ValueError, match="expected labels as before, 3 tasks"):
        model.partial_fit(x, y[:, :2])
    with pytest.raises(ValueError, match="first call of partial_fit needs all classes"):
        MultiTaskAUCClassifier().partial_fit(x, y[:, 0])


@pytest.mark.parametrize(
    "labels", [[0, 1, None, 1], [False, True, None, True], [2.0, 7.0, float("nan"), 7.0]]
)
def test_numbers_beside_gaps_in_an_array_of_objects(labels):
    found = read_targets(np.array(labels, dtype=object))
    assert found.labels.squeeze(1).tolist() == [0, 1, -1, 1]
    assert found.classes.tolist() == labels[:2]
