import random

import pytest

from mmb.report import write_report
from mmb.training import Run, train
from tiny_runs import tiny_recipe

ODD = '</script><script>alert(1)</script><img src=x onerror="alert(2)">&amp;'
NAMES = [ODD, "a <b>bold</b> task", "ümlaut & ends\u2028here", "plain"]


@pytest.fixture(scope="session")
def odd_table(tmp_path_factory):
    """A table whose tasks have names that would do harm if they were taken for HTML."""
    draw = random.Random(0)
    quoted = ['"' + name.replace('"', '""') + '"' for name in NAMES]
    lines = [",".join([*quoted, "x", "y"])]
    for _ in range(600):
        x, y = draw.gauss(0, 1), draw.gauss(0, 1)
        labels = [int(k * y + x + draw.gauss(0, 1) > 1.2) for k in range(3)]
        lines.append(",".join(map(str, [*labels, int(x + y > 2.2), x, y])))
    path = tmp_path_factory.mktemp("table") / "odd.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def runs(odd_table, tmp_path_factory):
    """Cross entropy once, partial AUC with two seeds."""
    folder = tmp_path_factory.mktemp("runs")
    data = {"name": "csv", "path": str(odd_table), "labels": NAMES, "fractions": [0.4, 0.2, 0.4]}
    made = []
    for method, seed in (("ce", 0), ("pauc", 0), ("pauc", 1)):
        recipe = tiny_recipe(method, seed=seed, optimizer={"lr": 0.01})
        recipe = type(recipe)(**{**vars(recipe), "data": data})
        made.append(Run.create(folder / f"{method}-{seed}", recipe))
        train(made[-1])
    return made


@pytest.fixture(scope="session")
def written(runs, tmp_path_factory):
    """The page about these runs, and what is on it."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    return path, write_report(runs, path)
