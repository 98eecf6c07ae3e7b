"""What `y` may be: strings, gaps, sparse matrices, series."""

import numpy as np
import pandas
import polars
import pytest
import scipy.sparse
from sklearn.model_selection import cross_val_predict

from estimators.tables import TINY, binary, many
from mmb.estimators import MultiTaskAUCClassifier
from mmb.estimators.targets import read_targets


def test_strings_and_gaps_in_one_column():
    x, y = binary(200)
    names = np.where(y == 1, "yes", "no").astype(object)
    model = MultiTaskAUCClassifier(**TINY).fit(x, names)
    assert model.classes_.tolist() == ["no", "yes"]
    assert set(model.predict(x)) == {"no", "yes"}
    for gap, labels in ((None, names), (np.nan, y.astype(float)), (-1, y)):
        labels = labels.copy()
        labels[::3] = gap
        kept = np.arange(len(x)) % 3 != 0
        with_gaps = MultiTaskAUCClassifier(**TINY).fit(x, labels)
        without = MultiTaskAUCClassifier(**TINY).fit(x[kept], labels[kept])
        np.testing.assert_array_equal(with_gaps.classes_, np.unique(names if gap is None else y))
        # scaling sees labeled rows only, so the two are the same
        np.testing.assert_array_equal(with_gaps.decision_function(x), without.decision_function(x))


def test_gaps_may_be_nan_or_minus_one():
    x, y = many(300)
    floating = np.where(y == -1, np.nan, y)
    first, second = (MultiTaskAUCClassifier(**TINY).fit(x, labels) for labels in (y, floating))
    np.testing.assert_array_equal(first.decision_function(x), second.decision_function(x))


@pytest.mark.parametrize(
    "labels", [[0, 1, None, 1], [False, True, None, True], [2.0, 7.0, float("nan"), 7.0]]
)
def test_numbers_next_to_gaps_in_an_array_of_objects(labels):
    found = read_targets(np.array(labels, dtype=object))
    assert found.labels.squeeze(1).tolist() == [0, 1, -1, 1]
    assert found.classes.tolist() == labels[:2]


def test_sparse_labels():
    x, y = many(200, tasks=3)
    y = (y == 1).astype(int)
    dense, sparse = (MultiTaskAUCClassifier(**TINY).fit(x, z) for z in (y, scipy.sparse.csr_array(y)))
    np.testing.assert_array_equal(dense.decision_function(x), sparse.decision_function(x))


@pytest.mark.parametrize("library", [pandas, polars])
def test_series_of_strings(library):
    x, y = binary(300)
    names = library.Series(["ill" if v else "well" for v in y])
    model = MultiTaskAUCClassifier(**TINY).fit(library.DataFrame(x), names)
    assert model.classes_.tolist() == ["ill", "well"]
    frame = library.DataFrame(x)
    assert model.score(frame, names) == model.score(frame, names.to_numpy())


def test_gaps_without_positives_warn():
    with pytest.warns(UserWarning, match=r"y: -1 and 0 .*NaN") as found:
        MultiTaskAUCClassifier(**TINY).fit(np.eye(4), [0, -1, 0, -1])
    assert found[0].filename == __file__  # the line that calls `fit`


def test_bad_labels_are_named():
    x = np.eye(4)
    with pytest.raises(ValueError, match=r"y: .*missing"):
        MultiTaskAUCClassifier().fit(x, np.full(4, np.nan))
    with pytest.raises(ValueError, match=r"y: .*got 3 at row 0, task 0$"):
        MultiTaskAUCClassifier().fit(x, np.full((4, 2), 3))
    with pytest.raises(ValueError, match=r"y: .*'b' and 1"):
        MultiTaskAUCClassifier().fit(x, np.array([1, "b", 1, "b"], dtype=object))
    with pytest.raises(ValueError, match=r"y: .*got <U3.*yes"):
        MultiTaskAUCClassifier().fit(x, [["yes", "no"]] * 4)
    with pytest.raises(ValueError, match=r"sample_weight|non-zero"):
        MultiTaskAUCClassifier().fit(x, [0, 1, 0, 1], sample_weight=np.zeros(4))
    model = MultiTaskAUCClassifier(hidden=(4,), steps=2).fit(x, [0, 1, 0, 1])
    with pytest.raises(ValueError, match=r"y: .*\[2\].*\[0, 1\]"):
        model.score(x, [0, 1, 2, 1])


def test_labels_numbered_by_scikit_learn_are_explained():
    x, y = many(120, tasks=2)
    with pytest.raises(ValueError, match=r"y: .*got 2 .*cross_val_predict.*loop"):
        cross_val_predict(MultiTaskAUCClassifier(**TINY), x, y, cv=2, method="predict_proba")
    assert cross_val_predict(MultiTaskAUCClassifier(**TINY), x, y, cv=2).shape == (120, 2)


def test_scoring_needs_the_tasks_and_rows_of_the_fit():
    x, y = many(120, tasks=2)
    model = MultiTaskAUCClassifier(**TINY).fit(x, y)
    for ask in (model.score, model.promise):
        with pytest.raises(ValueError, match=r"y: expected 2 tasks .*, got 4 tasks"):
            ask(x, np.column_stack([y, y]))
        with pytest.raises(ValueError, match=r"y: expected 2 tasks .*, got one column of 2 classes"):
            ask(x, y[:, 0])
        with pytest.raises(ValueError, match=r"X, y: .*got 5 and 120"):
            ask(x[:5], y)
