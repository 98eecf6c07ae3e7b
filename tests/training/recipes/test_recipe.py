"""Recipes: fragments are merged in order, checked strictly, and survive being written and read."""

import json
from pathlib import Path

import pytest
import yaml

from mmb.training import METHODS, RecipeError, read_recipe, resolve, with_overrides
from mmb.training.recipes.key_help import key_help
from mmb.training.recipes.layers import with_presets
from mmb.training.recipes.resolution import to_plain
from tiny_runs import tiny_recipe

DIGITS = {"method": "pauc", "data": {"name": "digits"}}


def resolved(*overrides, base=DIGITS):
    return resolve(with_overrides(base, overrides))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_recipe_that_survives_writing(method):
    recipe = resolve({"method": method, "data": {"name": "digits"}})
    assert resolve(yaml.safe_load(yaml.safe_dump(to_plain(recipe)))) == recipe


def test_epochs_count_instead_of_steps_stated_before():
    digits = {"method": "ce", "data": {"name": "digits"}}
    assert resolve(digits).training.steps == 1000  # by its presets
    for fragment in (digits, {**digits, "training": {"steps": 7}}):
        found = resolve(with_overrides(fragment, ["training.epochs=3"])).training
        assert (found.epochs, found.steps) == (3, None)
    assert resolve({**digits, "training": {"epochs": 3}}).training.steps is None
    assert resolve(with_overrides(digits, ["training.epochs=3", "training.steps=5"])).training.steps == 5


def test_values_are_typed():
    recipe = resolved("optimizer.lr=1e-4", "model.hidden=[8, 9]", "training.patience=3", "seed=5")
    assert recipe.optimizer.lr == 1e-4
    assert recipe.model["hidden"] == [8, 9]
    assert recipe.training.patience == 3
    assert recipe.seed == 5
    assert resolved("optimizer.clip=null").optimizer.clip is None


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer.lrr=1", "'optimizer.lr'"),
        ("optimiser.lr=1", "'optimizer.lr'"),
        ("objective.max_frp=0.2", "'objective.max_fpr'"),
        ("data.keep_positive=1", "'data.keep_positives'"),
        ("model.hiden=[3]", "'model.hidden'"),
        ("sampler.batchsize=3", "'sampler.batch_size'"),
        ("training.epoch=3", "'training.epochs'"),
        ("sed=3", "'seed'"),
        ("method=pauk", "'pauc'"),
        ("data.name=digit", "'digits'"),
        ("model.name=mpl", "'mlp'"),
        ("grid={optimizer.rl: [1]}", "'optimizer.lr'"),
        ("optimizer.lr=fast", r"optimizer\.lr.*float.*fast"),
        ("optimizer.name=adamm", r"optimizer\.name.*adamm"),
        ("training.steps=1.5", r"training\.steps.*1\.5"),
        ("seed=true", "seed.*True"),
        ("optimizer", "key=value"),
        ("data.path=2020-99-99", r"data\.path.*'2020-99-99'.*quotes"),
        ("seed=null", "seed.*null.*0"),
        ("sampler.max_weight=fast", r'"sampler\.max_weight": expected float or null, got fast$'),
        ("sampler.max_weight=[1, 2]", r'"sampler\.max_weight": expected float or null, got \[1, 2\]$'),
        ("optimizer.lr=null", r"optimizer\.lr.*null"),
        ("model.sha256=abc", r"model\.sha256.*model\.weights=FILE"),
        ("method=[ce]", "no method"),
        ("data.name=[digits]", r"data\.name"),
        ("data=digits", r"data\.name.*'digits'"),
        ("pretrain=ce", "pretrain"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_near(override, message):
    with pytest.raises(RecipeError, match=message):
        resolved(override)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("training.steps=0", "at least 1, got 0"),
        ("training.log_every=0", "at least 1, got 0"),
        ("training.keep_checkpoints=-1", "at least 1, got -1"),
        ("training.epochs=.inf", "a positive number up to 1e.30, got inf"),
        ("training.epochs=.nan", "a positive number up to 1e.30, got nan"),
        ("training.max_fpr=2", "more than 0 and at most 1, got 2.0"),
        ("optimizer.clip=0", "a positive number up to 1e.30, got 0.0"),
        ("optimizer.lr=-1", "a number from 0 to 1e.30, got -1.0"),
        ("optimizer.lr=1e99", "a number from 0 to 1e.30, got 1e.99"),
        ("optimizer.betas=[0.9, 1]", "at least 0 and less than 1, got"),
        ("sampler.tasks_per_step=0", "at least 1, got 0"),
    ],
)
def test_numbers_out_of_their_range_are_refused_before_anything_is_done(override, expected):
    with pytest.raises(RecipeError, match=f"^{override.split('=')[0]}: .*{expected}"):
        resolved(override)


def test_missing_parts_are_named():
    with pytest.raises(RecipeError, match=r"data\.name"):
        resolve({"method": "ce"})
    with pytest.raises(RecipeError, match="method None"):
        resolve({"data": {"name": "digits"}})
    with pytest.raises(RecipeError, match=r"data\.path"):
        resolve({"method": "ce", "data": {"name": "csv", "labels": "y"}})


def test_later_fragments_win_and_another_name_drops_options():
    recipe = resolved("model.name=gin")
    assert "hidden" not in recipe.model  # the hidden layers of the digits' mlp
    assert recipe.model["layers"] == 5  # a default of the network, written out
    assert resolved("model.dropout=0.3").model.items() >= {"name": "mlp", "dropout": 0.3}.items()
    assert resolved("model.dropout=0.3").model["hidden"] == [64]
    assert resolved("optimizer.lr=1").optimizer.lr == 1.0
    chosen = {**DIGITS, "objective": {"max_fpr": 0.2}, "grid": {"objective.max_fpr": [0.1]}}
    assert resolved("method=pauc", base=chosen).objective["max_fpr"] == 0.2
    assert resolved("method=ce", base=chosen).grid == {}


def test_the_network_follows_from_what_molecules_are_read_as():
    """Graphs have a network of their own, and train as long as anything; fingerprints overfit sooner."""
    own = {"method": "ce", "data": {"name": "molecules", "path": "assays.csv"}}
    recipe = resolve(own)
    assert (recipe.data["features"], recipe.data["bits"]) == ("descriptors", 1024)
    assert recipe.model.items() >= {"name": "mlp", "ranges": 8, "dropout": 0.5}.items()
    assert (recipe.training.epochs, recipe.optimizer.weight_decay) == (15, 1e-4)
    assert resolved("data.features=fingerprint", base=own).model["ranges"] == 0
    graphs = resolved("data.features=graph", base=own)
    assert graphs.model["name"] == "gin"
    assert (graphs.training.epochs, graphs.optimizer.weight_decay) == (30, 0)
    assert resolved("model.name=mlp", "model.hidden=[9]", "training.epochs=2", base=own).training.epochs == 2
    for name in ("model.name=gin", "model.name=mmb.models.graph_isomorphism:gin"):
        assert resolved(name, base=own).data["features"] == "graph"
    assert resolve({"method": "ce", "data": {"name": "molpcba"}}).model["name"] == "gin"
    assert resolve({"method": "ce", "data": {"name": "muv"}}).training.epochs == 6


def test_objectives_train_for_the_rate_that_is_reported():
    assert resolved("training.max_fpr=0.3").objective["max_fpr"] == 0.3
    assert resolved("training.max_fpr=0.3", "objective.max_fpr=0.2").objective["max_fpr"] == 0.2
    assert "max_fpr" not in resolved("training.max_fpr=0.3", "method=auc").objective
    for method in ("recall", "recall-constrained"):
        assert resolved("training.max_fpr=0.3", f"method={method}").objective["fpr"] == 0.3
        chosen = resolved("training.max_fpr=0.3", f"method={method}", "objective.fpr=0.2")
        assert chosen.objective["fpr"] == 0.2
    parts = resolved("training.max_fpr=0.3", "method=sum", "objective.parts={ce: {}, recall: {}}").objective
    assert parts["parts"]["recall"]["fpr"] == 0.3


def test_files_build_on_files(tmp_path):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "data.yaml").write_text("data: {name: digits, seed: 3}\ntraining: {epochs: 7}\n")
    (tmp_path / "base" / "slow.yaml").write_text("base: data.yaml\noptimizer: {lr: 1e-5}\n")
    (tmp_path / "own.yaml").write_text(
        "base: [base/slow.yaml]\nmethod: auc\ntraining: {patience: 2}\n"
        "pretrain: {base: base/slow.yaml, method: ce}\n"
    )
    recipe = resolve(read_recipe(tmp_path / "own.yaml"))
    assert (recipe.training.epochs, recipe.training.patience, recipe.optimizer.lr) == (7, 2, 1e-5)
    assert recipe.pretrain.method == "ce"
    assert recipe.pretrain.data == recipe.data
    assert recipe.pretrain.training.patience is None


def test_files_that_build_on_themselves_are_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("base: b.yaml\n")
    (tmp_path / "b.yaml").write_text("base: [c.yaml, a.yaml]\n")
    (tmp_path / "c.yaml").write_text("seed: 1\n")
    with pytest.raises(RecipeError, match=r"a\.yaml.*itself"):
        read_recipe(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_text("base: [c.yaml]\npretrain: {base: c.yaml}\n")  # twice is fine
    assert read_recipe(tmp_path / "a.yaml") == {"seed": 1, "pretrain": {"seed": 1}}
    (tmp_path / "b.yaml").write_text("base: 5\n")
    with pytest.raises(RecipeError, match=r"base.*5"):
        read_recipe(tmp_path / "a.yaml")


FILES = sorted((Path(__file__).parents[3] / "recipes").rglob("*.yaml"))
# of recipes, or about them
PARTS = ("rows.yaml", "start.yaml", "protocol.yaml", "pretrained.yaml", "study.yaml")
RECIPES = [path for path in FILES if not any(path.match(part) for part in PARTS)]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: "/".join(path.parts[-2:]))
def test_every_recipe_file_resolves(path):
    fragment = read_recipe(path)
    recipe = resolve(fragment)
    assert resolve(json.loads(json.dumps(to_plain(recipe)))) == recipe
    largest = [f"{key}={values[-1]}" for keys, values in recipe.grid.items() for key in keys.split()]
    resolve(with_overrides(fragment, largest))


@pytest.mark.parametrize("text", ["- a list", "key: [unclosed", "base: nowhere.yaml"])
def test_unreadable_files_are_named(tmp_path, text):
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(RecipeError, match=r"bad\.yaml|nowhere\.yaml"):
        read_recipe(tmp_path / "bad.yaml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("method: ce\nseed: 1\nmethod: pauc\n", "'method' is there twice, in lines 1 and 3"),
        ("data: {name: digits, seed: 1, seed: 2}\n", "'seed' is there twice, in lines 1 and 1"),
    ],
)
def test_a_key_may_be_there_once(tmp_path, text, told):
    (tmp_path / "twice.yaml").write_text(text)
    with pytest.raises(RecipeError, match=rf"twice\.yaml.*{told}"):
        read_recipe(tmp_path / "twice.yaml")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["digits", "csv", "synthetic", "tox21"])
def test_every_key_has_help(name, method):
    fragment = with_presets({"method": method, "data": {"name": name}})
    found = key_help(fragment)
    assert found["data.seed" if name != "tox21" else "data.bits"]["type"] == "whole number"
    for key, entry in found.items():
        assert entry["help"], f"no help for {key}"
        assert "`" not in entry["help"]


def test_a_section_may_be_empty():
    assert tiny_recipe("ce", objective={}, sampler={}) == tiny_recipe("ce")


@pytest.mark.parametrize("section", ["objective", "sampler", "training"])
def test_a_section_must_be_a_mapping(section):
    with pytest.raises(RecipeError, match=f"{section}.*3"):
        resolve({"method": "ce", "data": {"name": "digits"}, section: 3})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/b: c [x],100%", "a/b: c [x],100%"),
        ("{sick}", "{sick}"),
        ("- x", "- x"),
        ("a # b", "a # b"),
        ("2024-01-31", "2024-01-31"),
        ("no", "no"),
        ("'a: b'", "a: b"),
        ('["a: b", "100%", 1]', ["a: b", "100%", "1"]),
    ],
)
def test_names_of_columns_are_not_taken_for_yaml(text, expected):
    data = {"data": {"name": "table", "path": "t.csv"}}
    assert with_overrides(data, [f"data.labels={text}"])["data"]["labels"] == expected
    assert with_overrides(data, ["data.group=null"])["data"]["group"] is None
