"""Tables that are made up or come with scikit-learn, unlike each other.

What is chosen may be chosen on the first half of them, `MADE_CHOICE`, and is checked on the others.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn import datasets

Table = tuple[np.ndarray, np.ndarray]  # cells [n, d], labels int8 [n, m] with -1 for missing
Random = np.random.Generator


def _one(y: np.ndarray) -> np.ndarray:
    return np.asarray(y).astype(np.int8)[:, None]


def _above(score: np.ndarray, share: float) -> np.ndarray:
    """Labels `[n, m]`: the largest scores of each task are positive."""
    score = score[:, None] if score.ndim == 1 else score
    return (score > np.quantile(score, 1 - share, axis=0)).astype(np.int8)


def _made(rows: int, columns: int, **options: object) -> Callable[[Random], Table]:
    def make(random: Random) -> Table:
        x, y = datasets.make_classification(
            rows, columns, random_state=int(random.integers(2**31)), **options
        )
        return x, _one(y)

    return make


def moons(random: Random) -> Table:
    """1,000 rows in two noisy half circles, 10 % positives."""
    x, y = datasets.make_moons((900, 100), noise=0.25, random_state=int(random.integers(2**31)))
    return x, _one(y)


def circles(random: Random) -> Table:
    """Two noisy circles, and eight columns of noise."""
    x, y = datasets.make_circles(
        (1800, 200), noise=0.15, factor=0.6, random_state=int(random.integers(2**31))
    )
    return np.column_stack([x, random.standard_normal((len(x), 8))]), _one(y)


def hastie(random: Random) -> Table:
    """A sum of ten squares above a threshold."""
    x, y = datasets.make_hastie_10_2(4000, random_state=int(random.integers(2**31)))
    return x, _one(y > 0)


def parity(random: Random) -> Table:
    """The product of the signs of three columns, two more columns add to it, five are noise."""
    x = random.standard_normal((4000, 10))
    score = np.sign(x[:, 0] * x[:, 1] * x[:, 2]) * 2 + x[:, 3] + x[:, 4] + random.standard_normal(len(x))
    return x, _above(score, 0.1)


def boxes(random: Random) -> Table:
    """Positives lie in five boxes of two columns each; 3 % of the labels are wrong."""
    x = random.random((5000, 12))
    inside = np.zeros(len(x), bool)
    for _ in range(5):
        (i, j), (a, b) = random.choice(12, 2, replace=False), random.random(2) * 0.75
        inside |= (abs(x[:, i] - a - 0.12) < 0.12) & (abs(x[:, j] - b - 0.12) < 0.12)
    return x, _one(inside ^ (random.random(len(x)) < 0.03))


def deep_tree(random: Random) -> Table:
    """A random tree of depth six on twenty columns gives the odds."""
    x = random.standard_normal((6000, 20))
    leaf = np.zeros(len(x), int)
    for _ in range(6):
        columns, cuts = random.integers(20, size=leaf.max() + 1), random.standard_normal(leaf.max() + 1) * 0.5
        leaf = 2 * leaf + (x[np.arange(len(x)), columns[leaf]] > cuts[leaf])
        leaf = np.unique(leaf, return_inverse=True)[1]
    odds = random.standard_normal(leaf.max() + 1) * 2.5 - 3
    return x, _one(random.random(len(x)) < 1 / (1 + np.exp(-odds[leaf])))


def heavy_tails(random: Random) -> Table:
    """Cauchy columns; the odds depend on the signs and logarithms of five."""
    x = random.standard_cauchy((3000, 15))
    u = np.sign(x) * np.log1p(abs(x))
    score = u[:, 0] + u[:, 1] - abs(u[:, 2]) + u[:, 3] * (u[:, 4] > 0) + random.standard_normal(len(x))
    return x, _above(score, 0.08)


def lognormal(random: Random) -> Table:
    """Amounts of money: log-normal columns whose ratios count."""
    logs = random.standard_normal((3000, 10)) * 1.5
    score = (
        logs[:, 0] - logs[:, 1] + 0.7 * logs[:, 2] * (logs[:, 3] > 0.5) + random.standard_normal(len(logs))
    )
    return np.exp(logs) * 10.0 ** random.integers(-3, 6, size=10), _above(score, 0.05)


def categories(random: Random) -> Table:
    """Six one-hot columns of 3 to 30 names, two of which interact, and three columns of numbers."""
    rows, sizes = 4000, (3, 5, 8, 12, 20, 30)
    names = [random.integers(size, size=rows) for size in sizes]
    numbers = random.standard_normal((rows, 3))
    score = sum(random.standard_normal(size)[name] for size, name in zip(sizes, names, strict=True))
    score = score + 1.5 * random.standard_normal((8, 12))[names[2], names[3]] + numbers[:, 0]
    hot = [np.eye(size)[name] for size, name in zip(sizes, names, strict=True)]
    return np.column_stack([*hot, numbers]), _above(score + random.standard_normal(rows), 0.06)


def codes(random: Random) -> Table:
    """Names written as numbers: four columns of codes whose order says nothing, and two that do."""
    rows = 5000
    code = random.integers(40, size=(rows, 4))
    numbers = random.standard_normal((rows, 2))
    score = sum(random.standard_normal(40)[code[:, k]] for k in range(4)) + numbers[:, 0]
    return np.column_stack([code, numbers]).astype(float), _above(score + random.standard_normal(rows), 0.1)


def sparse_counts(random: Random) -> Table:
    """2,000 documents of 1,500 words; the odds depend on sixty words."""
    topics = random.dirichlet(np.full(1500, 0.03), 12)
    mix = random.dirichlet(np.full(12, 0.3), 2000)
    x = random.poisson(60 * mix @ topics).astype(float)
    score = np.log1p(x[:, :60]) @ random.standard_normal(60) + 3 * mix[:, 0]
    return x, _above(score + 0.3 * random.standard_normal(2000), 0.08)


def few_rows_many_columns(random: Random) -> Table:
    """150 rows, 2,000 columns, of which twenty matter, as with gene expression."""
    x = random.standard_normal((150, 20)) @ random.standard_normal((20, 2000)) * 0.3
    x += random.standard_normal((150, 2000))
    return np.exp(x / 3), _above(x[:, :20].sum(1) + 4 * random.standard_normal(150), 0.3)


def breast_cancer(random: Random) -> Table:
    """All of the 569 tumours; malignant is positive."""
    x, benign = datasets.load_breast_cancer(return_X_y=True)
    return x, _one(1 - benign)


def wine(random: Random) -> Table:
    """178 wines of three growers."""
    x, grower = datasets.load_wine(return_X_y=True)
    return x, (grower[:, None] == np.arange(3)).astype(np.int8)


def digit_eight(random: Random) -> Table:
    """Digits; eights are positive, and made rare: 2 %."""
    x, digit = datasets.load_digits(return_X_y=True)
    eights = random.permutation(np.flatnonzero(digit == 8))[:33]
    kept = np.sort(np.concatenate([np.flatnonzero(digit != 8), eights]))
    return x[kept], _one(digit[kept] == 8)


def iris_and_noise(random: Random) -> Table:
    """150 flowers of three species, and ten columns of noise."""
    x, species = datasets.load_iris(return_X_y=True)
    x = np.column_stack([x, random.standard_normal((150, 10))])
    return x, (species[:, None] == np.arange(3)).astype(np.int8)


def many_tasks(random: Random) -> Table:
    """2,000 rows, 200 tasks that share a few directions, 3 % positives, half of the labels missing."""
    x = random.standard_normal((2000, 30))
    hidden = np.tanh(x @ random.standard_normal((30, 10)) / 3)
    score = hidden @ random.standard_normal((10, 200)) + 0.5 * random.standard_normal((2000, 200))
    y = _above(score, 0.03)
    y[random.random(y.shape) < 0.5] = -1
    return x, y


def uneven_tasks(random: Random) -> Table:
    """Twelve tasks, 0.5 % to 50 % positives, curves and products, 10 % to 90 % of the labels missing."""
    x = random.standard_normal((4000, 15))
    u = np.column_stack([x, abs(x[:, :5]), x[:, :5] * x[:, 5:10], x[:, :5] > 0.5])
    score = u @ random.standard_normal((30, 12)) + random.standard_normal((4000, 12))
    y = np.column_stack([_above(score[:, k], share) for k, share in enumerate(np.geomspace(0.005, 0.5, 12))])
    y[random.random(y.shape) < np.linspace(0.1, 0.9, 12)[random.permutation(12)]] = -1
    return x, y


def three_hundred(random: Random) -> Table:
    """300 rows to fit, ten columns, a curve and a product, 15 % positives."""
    x = random.standard_normal((430, 10))
    score = x[:, 0] + x[:, 1] ** 2 + x[:, 2] * x[:, 3] + random.standard_normal(430)
    return x, _above(score, 0.15)


def linear_rare(random: Random) -> Table:
    """A linear truth with 1 % positives."""
    x = random.standard_normal((5000, 20)) @ random.standard_normal((20, 20)) / 4
    return x, _above(x @ random.standard_normal(20) + 2 * random.standard_normal(5000), 0.01)


def large(random: Random) -> Table:
    """100,000 rows to fit, 20 columns, 2 % positives."""
    return _made(143_000, 20, n_informative=10, n_clusters_per_class=4, weights=[0.98], flip_y=0.01)(random)


def drifting_waves(random: Random) -> Table:
    """Odds that oscillate along two columns, and one linear column."""
    x = random.random((5000, 8))
    score = np.sin(25 * x[:, 0]) + np.cos(18 * x[:, 1]) + 2 * x[:, 2] + 0.7 * random.standard_normal(5000)
    return x, _above(score, 0.1)


def neighborhoods(random: Random) -> Table:
    """Classes made of neighborhoods: sixty centers in five columns, a third of them positive."""
    centers, positive = random.standard_normal((60, 5)), random.random(60) < 0.3
    x = random.standard_normal((4000, 5))
    nearest = ((x[:, None] - centers) ** 2).sum(2).argmin(1)
    return x, _one(positive[nearest] ^ (random.random(4000) < 0.02))


MADE_CHOICE: dict[str, Callable[[Random], Table]] = {
    "cubes, 1 % positives": _made(8000, 20, n_informative=8, weights=[0.99], flip_y=0.002),
    "few rows, many columns": few_rows_many_columns,
    "moons": moons,
    "hastie": hastie,
    "boxes": boxes,
    "lognormal": lognormal,
    "categories": categories,
    "breast cancer, all": breast_cancer,
    "digit eight": digit_eight,
    "uneven tasks": uneven_tasks,
    "three hundred rows": three_hundred,
    "neighborhoods": neighborhoods,
}
MADE_CHECK: dict[str, Callable[[Random], Table]] = {
    "cubes, wrong labels": _made(3000, 20, n_informative=5, weights=[0.9], flip_y=0.2),
    "sparse counts": sparse_counts,
    "circles": circles,
    "parity": parity,
    "deep tree": deep_tree,
    "heavy tails": heavy_tails,
    "codes": codes,
    "wine, all": wine,
    "iris and noise": iris_and_noise,
    "many tasks": many_tasks,
    "linear, 1 % positives": linear_rare,
    "waves": drifting_waves,
}
MADE_LARGE: dict[str, Callable[[Random], Table]] = {"100,000 rows": large}
