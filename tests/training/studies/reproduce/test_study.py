"""Studies are read and checked; those of the project can be run."""

from pathlib import Path

import pytest

from mmb.training import RecipeError, TableStudy, plan_choices, plan_table
from mmb.training.studies import reproduce
from small_studies import write_study

ROOT = Path(__file__).parents[4]


def test_an_unknown_study_names_those_there_are(tmp_path):
    write_study(tmp_path)
    with pytest.raises(RecipeError, match="synthetic/table2"):
        TableStudy.read(tmp_path / "recipes", "synthetic/table3")


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"metric": "accuracy"}, "metric.*pauc.*accuracy"),
        ({"compare": "seconds"}, "compare.*rows, steps"),
        ({"panels": {"A panel": ["ce", "mb"]}}, "'mb'"),
    ],
)
def test_what_is_wrong_with_a_study_is_named(tmp_path, about, message):
    write_study(tmp_path, **about)
    with pytest.raises(RecipeError, match=message):
        TableStudy.read(tmp_path / "recipes", "synthetic/table2")


def test_rows_have_equally_many_choices(tmp_path):
    write_study(tmp_path, choices={"ce": [{}, {"seed": 3}]})
    with pytest.raises(RecipeError, match=r"choices.*ce 2, pauc 0"):
        TableStudy.read(tmp_path / "recipes", "synthetic/table2")


@pytest.mark.parametrize("name", reproduce.study_names(ROOT / "recipes/reproduce"))
def test_committed_studies_can_be_run(name, tmp_path):
    """Recipes resolve, rows are comparable, every row has a title and every figure a row."""
    study = TableStudy.read(ROOT / "recipes/reproduce", name)
    planned = plan_choices(study, tmp_path) if study.choices else []
    if not study.choices:
        planned = plan_table(study, 1, tmp_path, tmp_path)
    rows = sum(max(1, len(study.choices.get(row, ()))) for row in study.recipes)
    assert sum(one.name.startswith(name) for one in planned) == rows
    assert all(study.metric == one.run.recipe.training.select for one in planned if one.after)
    assert {*study.titles} <= {*study.recipes}
