"""Dotted keys and nested dicts are two forms of the same."""

from mmb.training.recipes.nested import difference, flatten, merge, nest, told_apart

NESTED = {"method": "ce", "optimizer": {"lr": 0.1, "betas": [0.9, 1]}, "grid": {}, "a": {"b": {"c": None}}}
FLAT = {"method": "ce", "optimizer.lr": 0.1, "optimizer.betas": [0.9, 1], "grid": {}, "a.b.c": None}


def test_keys_are_joined_and_split():
    assert flatten(NESTED) == FLAT
    assert nest(FLAT) == NESTED


def test_merging_leaves_both_as_they_were():
    first, second = {"a": {"b": 1, "c": {"d": 2}}}, {"a": {"c": {"e": 3}}, "f": 4}
    assert merge(first, second) == {"a": {"b": 1, "c": {"d": 2, "e": 3}}, "f": 4}
    assert (first, second) == ({"a": {"b": 1, "c": {"d": 2}}}, {"a": {"c": {"e": 3}}, "f": 4})


def test_options_of_a_method_go_with_it():
    own = {"objective": {"max_fpr": 0.2}, "branches": {"ce": {}}, "grid": {"optimizer.lr": [1]}}
    first = {"method": "soup", **own, "optimizer": {"lr": 0.1}, "soup": {"share": 0.2}}
    kept = {"optimizer": {"lr": 0.1}, "soup": {"share": 0.2}}
    assert merge(first, {"method": "ce"}) == {**kept, "method": "ce"}
    assert merge(first, {"method": "soup"}) == first
    assert merge(own, {"method": "soup"}) == {**own, "method": "soup"}


def test_differences_have_both_values():
    assert difference({"a": 1, "b": 2}, {"b": 3, "a": 1, "c": 4}) == {"b": (2, 3), "c": (None, 4)}
    assert difference(FLAT, dict(FLAT)) == {}


def test_a_message_names_the_first_keys_that_differ():
    old = {"seed": 0, "data": {"path": "a.csv"}, "model": {"width": 1, "depth": 2}}
    new = {"seed": 0, "data": {"path": "b.csv"}, "model": {"width": 2}, "note": "x", "method": "ce"}
    assert told_apart(old, {**old, "seed": 1}) == "seed (1 instead of 0)"
    text = told_apart(old, new)
    assert text.startswith("data.path (b.csv instead of a.csv), model.width (2 instead of 1)")
    assert text.endswith("and 2 more")
