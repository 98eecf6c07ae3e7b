"""Branches of a recipe: what they share with the first phase, and what is their own."""

import pytest

from mmb.training import METHODS, RecipeError, resolve
from mmb.training.recipes.resolution import to_plain
from tiny_runs import TINY, tiny_recipe


def total_steps(recipe):
    return recipe.training.steps + sum(branch.training.steps for branch in recipe.branches.values())


def test_the_first_phase_is_cross_entropy_with_the_settings_of_the_recipe():
    recipe = tiny_recipe("soup", optimizer={"lr": 0.02})
    assert recipe.pretrain == tiny_recipe("ce", optimizer={"lr": 0.02})


@pytest.mark.parametrize("method", ["soup", "ce-average", "ce-longer"])
def test_the_default_costs_half_as_much_again_as_cross_entropy(method):
    assert total_steps(tiny_recipe(method)) == 1.5 * tiny_recipe("ce").training.steps


def test_branches_follow_the_settings_of_the_recipe_and_their_own():
    changes = {"optimizer": {"lr": 0.02}, "seed": 3, "training": {"select": "auc"}}
    own = {"ce": {}, "far": {"method": "pauc", "objective": {"max_fpr": 0.5}, "optimizer": {"lr": 0.1}}}
    recipe = tiny_recipe("soup", branches=own, **changes)
    ce, far = recipe.branches["ce"], recipe.branches["far"]
    assert (ce.method, far.method) == ("ce", "pauc")
    assert (ce.optimizer.lr, far.optimizer.lr) == (0.02, 0.1)
    assert far.objective["max_fpr"] == 0.5
    assert {ce.training.select, far.training.select} == {"auc"}
    assert (ce.training.steps, ce.schedule.name, ce.init_heads, ce.training.warm_start) == (
        4,
        "cosine",
        True,
        True,
    )
    assert len({recipe.seed, ce.seed, far.seed}) == 3
    assert ce.data == far.data == recipe.data


def test_the_defaults_of_a_branch_s_method_hold_in_it():
    recipe = tiny_recipe("soup", branches={"ce": {}, "auc-ct": {}})
    assert recipe.branches["auc-ct"].sampler.kind == METHODS["auc-ct"].defaults["sampler"]["kind"]
    assert recipe.branches["ce"].sampler.kind == "rows"


def test_a_recipe_in_epochs_has_branches_in_epochs():
    own = {"branches": {**METHODS["soup"].defaults["branches"], "other": {"method": "pauc", "fresh": True}}}
    recipe = resolve({"method": "soup", "data": {"name": "synthetic"}, "training": {"epochs": 20}, **own})
    assert {branch.training.epochs for branch in recipe.branches.values() if not branch.fresh} == {2.0}
    assert recipe.branches["other"].training.epochs == 5.0
    assert {branch.training.steps for branch in recipe.branches.values()} == {None}


def test_a_fresh_branch_trains_as_the_first_phase_does_for_another_objective():
    first = {"optimizer": {"lr": 0.5}, "objective": {"task_weighting": 0.5}, "training": {"steps": 100}}
    branches = {"ce": {}, "other": {"method": "pauc", "fresh": True}}
    recipe = tiny_recipe("soup", pretrain=first, branches=branches, optimizer={"lr": 0.1})
    ce, other = recipe.branches["ce"], recipe.branches["other"]
    assert (ce.fresh, ce.init_heads, ce.optimizer.lr, ce.training.steps) == (False, True, 0.1, 4)
    assert (other.fresh, other.init_heads, other.optimizer.lr, other.training.steps) == (True, False, 0.5, 25)
    assert other.objective["task_weighting"] == 0.0  # options of the first objective are not its own
    assert other.schedule == recipe.pretrain.schedule != ce.schedule
    assert not other.training.warm_start


def test_without_test_rows_no_phase_sees_them():
    recipe = tiny_recipe("soup").untested()
    assert not any(r.training.test for r in (recipe, recipe.pretrain, *recipe.branches.values()))


def test_only_recipes_with_branches_write_them():
    plain = to_plain(tiny_recipe("soup"))
    assert resolve(plain) == tiny_recipe("soup")
    assert plain["soup"]["share"] == 0.1
    assert not {"soup", "branches", "pretrain"} & to_plain(tiny_recipe("ce")).keys()


def test_phases_may_differ_in_dropout_but_not_in_the_names_of_their_weights():
    changes = {"branches": {"ce": {"model": {"dropout": 0.0}}}, "pretrain": {"model": {"dropout": 0.4}}}
    recipe = tiny_recipe("soup", **changes)
    phases = (recipe.pretrain, recipe, recipe.branches["ce"])
    assert [one.model["dropout"] for one in phases] == [0.4, 0.2, 0.0]
    deep = {"model": {"hidden": [8, 8]}}
    with pytest.raises(RecipeError, match=r"branches\.ce\.model\.dropout"):
        tiny_recipe("soup", **deep, **changes)
    assert tiny_recipe("soup", **deep, branches={"ce": {"model": {"dropout": 0.1}}}).branches
    with pytest.raises(RecipeError, match=r"pretrain\.model\.hidden"):
        tiny_recipe("soup", pretrain=deep)


def test_branches_belong_to_methods_that_average_them():
    own = {"branches": {"ce": {}}}
    assert tiny_recipe("ce-longer", **own).branches
    with pytest.raises(RecipeError, match=r"branches.*'ce'.*method=soup"):
        tiny_recipe("ce", **own)


@pytest.mark.parametrize(
    ("branches", "message"),
    [
        (["ce"], "branches.*mapping"),
        ({"ce": "auc"}, "branches.*mapping"),
        ({"../ce": {"method": "ce"}}, "folder"),
        ({"auc": {"fresh": True}}, "branches.*fresh"),
        ({"no-such": {}}, "no method 'no-such'"),
        ({"ce": {}, "soup": {}}, "branches.soup"),
        ({"ce": {"pretrain": {"method": "ce"}}}, "branches.ce"),
        ({"ce": {"optimizer": {"rl": 1}}}, "optimizer.lr"),
        (
            {"ce": {}, "x": {"method": "ce", "data": {"seed": 4}}},
            r"branches\.x\.data\.seed.*expected 0.*got 4",
        ),
        ({"ce": {}, "auc": {"model": {"hidden": [7]}}}, r"branches\.auc\.model\.hidden.*\[8\].*\[7\]"),
        ({"ce": {}, "auc": {"model": {"hidden": [7]}, "fresh": True}}, r"branches\.auc\.model\.hidden"),
        ({"ce": {"model": {"ranges": 2}}}, r"branches\.ce\.model\.ranges"),
        ({}, "branches.*soup.*at least one"),
    ],
)
def test_bad_branches_are_named(branches, message):
    with pytest.raises(RecipeError, match=message):
        resolve({"method": "soup", **TINY, "branches": branches})
