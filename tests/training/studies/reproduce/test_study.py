"""Studies are read and checked; those of the project can be run."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from mmb.training import RecipeError, RunError, TableStudy, plan_choices, plan_table
from mmb.training.recipes.nested import flatten
from mmb.training.recipes.presets import GRIDS
from mmb.training.studies import reproduce
from small_studies import call, write_study
from tiny_runs import TINY

ROOT = Path(__file__).parents[4]
STUDIES = ROOT / "recipes/reproduce"
PAPER = {
    ("cifar100", "table1"): (10, 128, 2000, ()),
    ("chexpert", "table1"): (1, 32, 6, (4,)),
    ("celeba", "table1"): (1, 128, 40, (30,)),
    ("molpcba", "table1"): (10, 128, 100, ()),
    ("cifar100", "table2"): (10, 64, 100, (50,)),
    ("chexpert", "table2"): (1, 32, 5, ()),
    ("celeba", "table2"): (4, 64, 50, ()),
    ("molpcba", "table2"): (1, 64, 100, (50,)),
}  # section 5: tasks per step, rows of each, epochs, epochs at which step sizes fall


def write_like(folder, name, base, **about):
    place = folder / name
    place.mkdir(parents=True)
    (place / "study.yaml").write_text(yaml.safe_dump({"base": base, **about}))


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


def test_a_study_like_another_changes_all_recipes_and_their_first_phases(tmp_path):
    recipes = write_study(tmp_path, choices={"ce": [{}], "pauc": [{"seed": 3}]}) / "recipes"
    change = {"training": {"steps": 3}, "sampler": {"batch_size": 16}}
    write_like(recipes, "short/table", "synthetic/table2", title="Short", rows=["pauc"], change=change)
    write_like(recipes, "shorter/table", "short/table", change={"training": {"steps": 2}})
    study = TableStudy.read(recipes, "shorter/table")
    assert (study.title, [*study.recipes], [*study.choices]) == ("Short", ["pauc"], ["pauc"])
    recipe = study.recipe("pauc", 1)
    for phase in (recipe, recipe.pretrain):
        assert (phase.training.steps, phase.sampler.batch_size) == (2, 16)
    assert recipe.training.evaluate_every == 3  # as it is there
    assert study.start_name(0) == "shorter/start/seed-0"
    write_like(recipes, "lost/table", "missing/table")
    with pytest.raises(RecipeError, match="no study missing/table"):
        TableStudy.read(recipes, "lost/table")


def test_rungs_of_a_ladder_differ_in_network_length_and_first_phase(tmp_path):
    own = {"model": {"hidden": [4]}, "training": {"steps": 3}}
    alone = {"pretrain": None, "init_heads": False}
    other = {"pretrain": {"base": "../start.yaml", "training": {"steps": 3}}}
    for compare, changes, message in (
        ("rows", {"ce": own}, "fair.*model"),
        ("rows", {"ce": alone}, "different first phases"),
        ("steps", {"ce": own}, "fair.*model"),
        ("steps", {"ce": alone}, None),
        ("data", {"ce": {**own, **alone}}, None),
        ("data", {"ce": own, "pauc": other}, "different first phases"),
    ):
        write_study(tmp_path, changes=changes, compare=compare)
        study = TableStudy.read(tmp_path / "recipes", "synthetic/table2")
        with nullcontext() if message is None else pytest.raises(RunError, match=message):
            planned = plan_table(study, 1, tmp_path / compare, tmp_path)
            assert [one.name for one in planned if one.after] == ["synthetic/table2/pauc/seed-0"]


@pytest.mark.parametrize(("data", "table"), PAPER)
def test_the_papers_protocol_is_that_of_its_section_5(data, table):
    study = TableStudy.read(STUDIES, f"{data}-paper/{table}")
    tasks, rows, epochs, decays = PAPER[data, table]
    assert {"auc", "auc-ct"} <= {*study.recipes} or {"ce", "focal", "mb", "sopa-s", "pauc"} <= {
        *study.recipes
    }
    for row in study.recipes:
        recipe = study.recipe(row, 0)
        for phase in filter(None, (recipe, recipe.pretrain)):
            assert (phase.data["name"], phase.sampler.kind, phase.optimizer.name) == (
                data,
                "tasks",
                "momentum",
            )
            assert (phase.sampler.tasks_per_step, phase.sampler.rows_per_task) == (tasks, rows)
            assert (phase.training.epochs, phase.training.steps) == (epochs, None)
            assert tuple(phase.schedule.milestones if phase.schedule.name == "step" else ()) == decays
        assert recipe.objective.get("margin", 1.0) == 1.0
        after = table == "table2" and row not in ("ce", "focal")
        assert (recipe.pretrain is not None) == after
        assert recipe.init_heads == (row == "ce-longer")


@pytest.mark.parametrize("table", ["table1", "table2"])
def test_settings_that_are_tried_are_from_the_papers_grids(table):
    rates = {"table1": [0.01, 0.03, 0.05, 0.07, 0.1], "table2": [0.0001, 0.0005, 0.001, 0.005, 0.01]}[table]
    study = TableStudy.read(STUDIES, f"molpcba-paper/{table}")
    for row, changes in study.choices.items():
        grid = {
            key: values
            for keys, values in GRIDS.get(study.recipe(row, 0).method, {}).items()
            for key in keys.split()
        }
        grid |= {"optimizer.lr": rates, "optimizer.momentum": [0.9, 0.5, 0.1]}
        for change in map(flatten, changes):
            assert all(value in grid[key] for key, value in change.items()), (row, change)


@pytest.mark.parametrize("table", ["table1", "table2"])
def test_the_papers_protocol_trains(table, tmp_path):
    """On a stand-in, with step sizes of block variables that fall and metrics on training rows."""
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    for path in (STUDIES / "molpcba-paper", STUDIES / "molpcba-paper-short"):
        (recipes / path.name).symlink_to(path)
    settings = {**TINY["training"], "steps": 4, "evaluate_every": 2, "capture": False, "train_rows": 50}
    settings |= {"precision": "float32"}
    change = {"data": TINY["data"], "model": {"name": "mlp", "hidden": [4]}, "training": settings}
    change["schedule"] = {"milestones": [0.01]}
    write_like(recipes, f"synthetic/{table}", f"molpcba-paper-short/{table}", choices={}, change=change)
    assert call(tmp_path, table, "--seeds", "1") == call(tmp_path, "--check") == 0
    header = (tmp_path / f"results/synthetic/{table}/curves.csv").read_text().split()[0]
    assert header.endswith("train_auc" if table == "table1" else "train_pauc")


@pytest.mark.parametrize("name", reproduce.study_names(STUDIES))
def test_committed_studies_can_be_run(name, tmp_path):
    """Recipes resolve, rows are comparable, every row has a title and every figure a row."""
    study = TableStudy.read(STUDIES, name)
    if study.change:  # like another one, whose choices are all tried here
        study = replace(study, choices={row: changes[:1] for row, changes in study.choices.items()})
    planned = plan_choices(study, tmp_path) if study.choices else []
    if not study.choices:
        planned = plan_table(study, 1, tmp_path, tmp_path)
    rows = sum(max(1, len(study.choices.get(row, ()))) for row in study.recipes)
    assert sum(one.name.startswith(name) for one in planned) == rows
    assert all(study.metric == one.run.recipe.training.select for one in planned if one.after)
    assert {*study.titles} <= {*study.recipes}
