"""Frames with names, dates and gaps."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from estimators.tables import SMALL, TINY, binary
from mmb.estimators import MultiTaskAUCClassifier


def _columns(rows=300, seed=0):
    draw = np.random.default_rng(seed)
    city = draw.choice(["rome", "oslo", "paris"], rows)
    x = draw.standard_normal(rows)
    y = ((city == "rome") | (x > 1.2)).astype(int)
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(draw.integers(0, 300, rows), "D")
    return {"x": x, "city": city, "day": day, "old": draw.random(rows) < 0.5}, y


def test_pandas_and_polars_frames_give_the_same_model():
    columns, y = _columns()
    columns["x"][::9] = np.nan
    columns["city"] = columns["city"].astype(object)
    columns["city"][::7] = None
    pandas = pd.DataFrame(columns).assign(city=lambda frame: frame["city"].astype("category"))
    polars = pl.DataFrame({**columns, "day": columns["day"].to_pydatetime()}).with_columns(
        pl.col("x").fill_nan(None)
    )
    models = [MultiTaskAUCClassifier(**SMALL).fit(frame, y) for frame in (pandas, polars)]
    assert models[0].score(pandas, y) > 0.75  # the city is the better part of it
    assert models[0].n_features_in_ == 4
    assert np.allclose(models[0].predict_proba(pandas), models[1].predict_proba(polars))
    new = pandas.head(3).assign(city=["oslo", "berlin", None])
    probability = models[0].predict_proba(new)
    assert np.isfinite(probability).all()


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_names_are_asked_for_again():
    columns, y = _columns()
    frame = pd.DataFrame(columns)
    model = MultiTaskAUCClassifier(**TINY).fit(frame, y)
    with pytest.raises(ValueError, match=r"frame.*'city'"):
        model.predict(np.zeros((2, 4)))
    with pytest.raises(ValueError, match=r"[Ff]eature names"):
        model.predict(frame.rename(columns={"city": "town"}))
    with pytest.raises(ValueError, match=r"'city'.*identifier"):
        model.fit(frame.assign(city=[f"c{k}" for k in range(len(frame))]), y)


@pytest.mark.parametrize("frame_of", [pd.DataFrame, pl.DataFrame])
def test_cells_of_another_kind_are_named_by_their_column(frame_of):
    columns, y = _columns()
    columns["day"] = columns["day"].strftime("%Y-%m-%d").to_numpy().astype(object)
    model = MultiTaskAUCClassifier(**TINY).fit(frame_of(columns), y)
    days = columns["day"].copy()
    days[7] = "soon"
    with pytest.raises(ValueError, match=r"X: 1 row has .*'day': 'soon' is not a date.*\[8\]"):
        model.predict(frame_of({**columns, "day": days}))
    with pytest.raises(ValueError, match=r"X: column 'x' has numbers in `fit`"):
        model.predict(frame_of({**columns, "x": ["a"] * len(y)}))


def test_a_frame_without_rows_yet_is_refused():
    columns, y = _columns(30)
    with pytest.raises(TypeError, match=r"X: got a LazyFrame.*X\.collect\(\)"):
        MultiTaskAUCClassifier(**TINY).fit(pl.DataFrame({"x": columns["x"]}).lazy(), y)


def test_columns_of_the_same_name_are_refused():
    columns, y = _columns()
    frame = pd.DataFrame(columns)
    with pytest.raises(ValueError, match=r"X: .*'city'.*more than once"):
        MultiTaskAUCClassifier(**TINY).fit(pd.concat([frame, frame[["city"]]], axis=1), y)


def test_gaps_are_medians():
    X, y = binary(200)
    holed = X.copy()
    holed[::5, 2] = np.nan
    filled = np.where(np.isnan(holed), np.nanmedian(holed, 0), holed)
    first, second = (MultiTaskAUCClassifier(**TINY).fit(x, y) for x in (holed, filled))
    assert np.array_equal(first.predict_proba(holed), second.predict_proba(filled))
    assert np.array_equal(first.predict_proba(holed[:5]), second.predict_proba(filled[:5]))
    with pytest.raises(ValueError, match="infinity"):
        first.predict(np.where(np.isnan(holed), np.inf, holed))


@pytest.mark.parametrize("max_fpr", [0.2, 1.0])
def test_weights_in_score_are_repetitions(max_fpr):
    X, y = binary(300)
    model = MultiTaskAUCClassifier(**(TINY | {"max_fpr": max_fpr})).fit(X, y)
    assert model.score(X, y, np.ones(len(y))) == pytest.approx(model.score(X, y), abs=1e-6)
    times = np.random.default_rng(0).integers(0, 4, len(y))
    repeated = model.score(np.repeat(X, times, 0), np.repeat(y, times))
    assert model.score(X, y, sample_weight=times) == pytest.approx(repeated, abs=1e-6)
    assert np.isnan(model.score(X, y, sample_weight=(y == 1).astype(float)))


def test_verbose_says_what_is_done(capsys):
    X, y = binary(100)
    MultiTaskAUCClassifier(**TINY).fit(X, y)
    assert not capsys.readouterr().out
    MultiTaskAUCClassifier(**TINY, verbose=1).fit(X, y)
    said = capsys.readouterr().out
    assert "100 rows" in said
    assert "8 steps by cross-entropy" in said
    assert "held-out" in said
