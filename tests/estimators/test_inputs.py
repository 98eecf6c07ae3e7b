"""What `X` may be: any scale, outliers, sparse matrices, data frames."""

import numpy as np
import pandas
import polars
import pytest
import scipy.sparse
import torch
from sklearn.preprocessing import StandardScaler

from estimators.tables import SMALL, TINY, binary, many
from mmb.estimators import MultiTaskAUCClassifier, inputs
from mmb.estimators.inputs import Rows, Standardizer


def standardized(x):
    standardize = Standardizer(sparse=False)
    standardize.learn(x, np.ones(len(x)))
    return standardize(x, torch.float64).numpy()


def test_standardized_inputs_keep_their_order():
    generator = np.random.default_rng(0)
    rare = 2.0 * (generator.random(500) < 0.1)
    x = np.column_stack([generator.uniform(3, 9, 500), rare, np.full(500, 7.0)])
    found = standardized(x)
    assert (found[:, 2] == 0).all()  # a constant column
    u = StandardScaler().fit_transform(x)
    np.testing.assert_allclose(found, u / np.sqrt(1 + u**2 / 16), atol=1e-12)


def test_rare_bits_are_not_loud():
    """Whatever their share of ones, columns of zeros and ones keep the distance that a fair coin has."""
    x = (np.random.default_rng(0).random((1000, 4)) < [0.5, 0.2, 0.05, 0.005]).astype(float)
    for sparse in (False, True):
        rows = scipy.sparse.csr_array(x) if sparse else x
        standardize = Standardizer(sparse)
        standardize.learn(rows, np.ones(1000))
        u = (x - (0 if sparse else x.mean(0))) / 0.5
        np.testing.assert_allclose(standardize(rows, torch.float64), u / np.sqrt(1 + u**2 / 16), atol=1e-12)


def test_tails_do_not_narrow_the_bulk():
    """The bulk of a column with tails lies where a normal column does, whatever the shape of the tails."""
    normal = np.random.default_rng(0).standard_normal((2000, 1))
    for x in (normal, 1e6 * np.sinh(3 * normal), normal**5 - 3):
        found = standardized(x)
        assert np.abs(found).max() < 4
        assert (np.diff(found[normal[:, 0].argsort(), 0]) > 0).all()
        low, middle, high = np.quantile(found, [0.25, 0.5, 0.75])
        assert abs(middle) < 0.05
        assert high - low == pytest.approx(1.33, abs=0.03)


@pytest.mark.parametrize("outlier", [1e3, 1e8, 1e12, -999999999.0])
def test_one_cell_far_out_leaves_the_others_as_they_were(outlier):
    column = np.random.default_rng(0).normal(size=(500, 1))
    spoilt = np.concatenate([column, [[outlier]]])
    inputs = []
    for rows in (column, spoilt):
        standardize = Standardizer(sparse=False)
        standardize.learn(rows, np.ones(len(rows)))
        inputs.append(standardize(rows, torch.float64))
    assert float(np.corrcoef(inputs[0][:, 0], inputs[1][:500, 0])[0, 1]) > 0.999
    assert 0.5 < float(inputs[1][:500].std()) < 2


def test_cells_out_of_reach_stay_at_their_end():
    standardize = Standardizer(sparse=False)
    standardize.learn(np.linspace(-1, 1, 50).reshape(-1, 1), np.ones(50))
    found = standardize(np.array([[-1e300], [-1e160], [0.0], [1e160], [1e300]]), torch.float64)
    torch.testing.assert_close(found[:, 0], torch.tensor([-4.0, -4, 0, 4, 4], dtype=torch.float64))


def test_zeros_of_sparse_rows_stay_zeros():
    x = scipy.sparse.random_array((200, 30), density=0.05, rng=np.random.default_rng(0), format="csr")
    standardize = Standardizer(sparse=True)
    standardize.learn(x, np.ones(200))
    rows = Rows(x, standardize)
    np.testing.assert_array_equal(rows.take(torch.arange(200)) != 0, x.toarray() != 0)


def test_too_large_values_are_named():
    x, y = binary(60)
    x[3, 2] = 1e300
    with pytest.raises(ValueError, match=r"X: column 2 .*too large"):
        MultiTaskAUCClassifier(**SMALL).fit(x, y)


def test_only_what_sparse_rows_hold_is_computed(monkeypatch):
    x = scipy.sparse.csr_array(
        ([2.0, 3.0, 4.0], [1, 1, 7], [0, 2, 3, 3]), shape=(3, 50)
    )  # one entry in parts
    standardize, counts = Standardizer(sparse=True), []
    standardize.learn(scipy.sparse.csr_array(x.toarray()), np.ones(3))
    monkeypatch.setattr(inputs, "squash", lambda values: counts.append(len(values)) or values)
    found = standardize(x, torch.float64)
    monkeypatch.undo()
    assert counts == [2]
    assert found.nonzero().tolist() == [[0, 1], [1, 7]]
    np.testing.assert_allclose(found[0, 1] * np.std([5, 0, 0]), 5)
    assert len(x.data) == 3


def test_sparse_rows():
    """Any sparse form will do, and what was learned from one form applies to the others and to dense rows."""
    generator = np.random.default_rng(0)
    x = (generator.random((400, 50)) < 0.1).astype(float)
    y = (x[:, :5].sum(1) > 0).astype(int)
    forms = (scipy.sparse.csr_array, scipy.sparse.csc_matrix, scipy.sparse.coo_array)
    model = MultiTaskAUCClassifier(**SMALL).fit(scipy.sparse.csr_array(x[:300]), y[:300])
    assert model.score(scipy.sparse.csr_array(x[300:]), y[300:]) > 0.9
    dense = MultiTaskAUCClassifier(**TINY).fit(x[:300], y[:300])
    for form in forms:
        again = MultiTaskAUCClassifier(**TINY).fit(form(x[:300]), y[:300])
        np.testing.assert_allclose(again.decision_function(form(x)), again.decision_function(x))
        np.testing.assert_allclose(dense.decision_function(form(x)), dense.decision_function(x))


@pytest.mark.parametrize("library", [pandas, polars])
def test_data_frames(library):
    """Frames give what arrays give; names of columns are kept and looked at; nulls are gaps."""
    x, y = many(200, tasks=3)
    columns = [f"x{j}" for j in range(x.shape[1])]
    frame = library.DataFrame({name: x[:, j] for j, name in enumerate(columns)})
    labels = library.DataFrame({f"y{k}": [None if v == -1 else int(v) for v in y[:, k]] for k in range(3)})
    if library is pandas:
        labels = labels.astype("Int64")
    plain = MultiTaskAUCClassifier(**TINY).fit(x, y)
    model = MultiTaskAUCClassifier(**TINY).fit(frame, labels)
    assert model.feature_names_in_.tolist() == columns
    np.testing.assert_array_equal(model.predict_proba(frame), plain.predict_proba(x))
    assert model.score(frame, labels) == plain.score(x, y)
    assert isinstance(model.predict(frame), np.ndarray)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[columns[::-1]])
