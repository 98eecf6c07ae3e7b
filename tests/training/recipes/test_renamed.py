"""Old names in recipes are refused with the new ones, and translated in recipes that were stored."""

import pytest

import mmb.training
from mmb.training import RecipeError, resolve, with_overrides
from mmb.training.recipes.renamed import translate
from mmb.training.recipes.resolution import to_plain


@pytest.mark.parametrize(
    ("method", "override", "new"),
    [
        ("pauc", "objective.scores=logit", "objective.transform"),
        ("pauc", "objective.transform=recentred", "recentered"),
        ("sopa-s", "objective.momentum=0.5", "objective.beta"),
        ("pauc", "grid={objective.lr_dual objective.scores: [logit]}", "objective.transform"),
        ("pauc", "grid={objective.transform: [logit, recentred]}", "recentered"),
        ("pauc", "pretrain={method: sopa-s, objective: {momentum: 0.5}}", "objective.beta"),
    ],
)
def test_an_old_name_is_refused_with_the_new_one(method, override, new):
    base = {"method": method, "data": {"name": "digits"}}
    with pytest.raises(RecipeError, match=f"is now .*{new}"):
        resolve(with_overrides(base, [override]))


def test_names_that_mean_something_else_stay():
    base = {"method": "pauc", "data": {"name": "digits"}}
    assert resolve(with_overrides(base, ["optimizer.momentum=0.5"])).optimizer.momentum == 0.5


def test_a_stored_recipe_is_translated_with_all_its_parts():
    stored = {
        "method": "sopa-s",
        "data": {"name": "digits", "seed": 3},
        "objective": {"scores": "recentred", "momentum": 0.4, "margin": 2.0},
        "optimizer": {"momentum": 0.9},
        "grid": {"objective.scores objective.momentum": ["recentred", 1]},
        "pretrain": {"method": "auc", "objective": {"scores": "logit"}},
        "note": "recentred",
    }
    fresh = translate(stored)
    assert fresh == {
        **stored,
        "objective": {"transform": "recentered", "beta": 0.4, "margin": 2.0, "anchor": 0.0},
        "grid": {"objective.transform objective.beta": ["recentered", 1]},
        "pretrain": {"method": "auc", "objective": {"transform": "logit", "anchor": 0.0}},
    }
    assert translate(fresh) == fresh


def test_a_stored_network_without_ranges_stays_without(tmp_path):
    """Tables have them by default now, also in branches and the first phase."""
    model = {"name": "mlp", "hidden": [8]}
    table = {"name": "table", "path": str(tmp_path / "table.csv"), "labels": "y"}
    plain = to_plain(resolve({"method": "soup", "data": table, "model": model}))
    assert plain["model"]["ranges"] == 8

    def as_earlier(recipe):
        recipe["model"].pop("ranges")
        for inner in (recipe.get("pretrain"), *(recipe.get("branches") or {}).values()):
            if inner:
                as_earlier(inner)

    as_earlier(plain)
    found = resolve(translate(plain))
    assert found.pretrain.model["ranges"] == 0
    assert {one.model["ranges"] for one in (found, *found.branches.values())} == {0}


def test_a_stored_soup_trains_its_branches_however_its_start_ended():
    plain = to_plain(resolve({"method": "soup", "data": {"name": "digits"}}))
    assert (plain["soup"].pop("still_rising"), plain["soup"].pop("still_gaining")) == (0.005, 0.01)
    found = resolve(translate(plain)).soup
    assert (found.still_rising, found.still_gaining) == (1, 1)


def test_a_recipe_of_today_is_not_changed():
    plain = to_plain(resolve({"method": "sopa-s", "data": {"name": "digits"}}))
    assert translate(plain) == plain


def test_the_old_name_of_a_function_raises_with_the_new_one():
    with pytest.raises(ImportError, match="with_overrides"):
        mmb.training.parse_overrides  # noqa: B018


@pytest.mark.parametrize(("method", "later"), [("auc", {"anchor"}), ("pauc-pairwise", {"anchor", "unit"})])
def test_options_that_came_later_leave_stored_runs_as_they_were(method, later):
    stored = to_plain(resolve({"method": method, "data": {"name": "digits"}}))
    assert translate(stored) == stored  # it has them
    for name in later:
        del stored["objective"][name]
    objective = translate(stored)["objective"]
    assert (objective["anchor"], objective.get("unit", 1.0)) == (0.0, 1.0)
