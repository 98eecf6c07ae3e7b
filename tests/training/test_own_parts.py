"""Data, network and objective of one's own, by import path, in everything that the trainer does."""

import csv
import hashlib
import json
import random
import re
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import own_parts
from mmb.cli import main
from mmb.data import NewRows
from mmb.report import write_report
from mmb.training import (
    RecipeError,
    Run,
    RunError,
    evaluate_run,
    fit,
    plan_comparison,
    resolve,
    summarize,
    train,
    train_many,
    with_overrides,
)
from mmb.training.recipes.key_help import key_help
from mmb.training.recipes.resolution import to_plain
from mmb.training.runs import checkpoint
from mmb.training.runs.export import export_run
from mmb.training.runs.predict_file import predict_file

OWN = {
    "method": "own_parts:HalfCrossEntropy",
    "data": {"name": "own_parts:load", "rows": 200},
    "model": {"name": "own_parts:build", "width": 4},
    "training": {"steps": 20, "evaluate_every": 10, "tensorboard": False, "device": "cpu"},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = Run.create(tmp_path_factory.mktemp("own") / "run", resolve(OWN))
    train(run)
    return run


def test_options_come_from_signatures(run):
    assert run.recipe.data == {"name": "own_parts:load", "rows": 200, "noise": 0.3, "seed": 0}
    weights = checkpoint.load(run.best_checkpoint())["job"]["model"]
    assert weights["0.weight"].shape == (4, 5)
    assert resolve(to_plain(run.recipe)) == run.recipe
    keys = key_help(OWN)
    assert "data.noise" in keys
    assert "Of the hidden layer" in keys["model.width"]["help"]
    with pytest.raises(RecipeError, match=r"data\.rowz.*data\.rows"):
        resolve({**OWN, "data": {"name": "own_parts:load", "rowz": 1}})
    with pytest.raises(RecipeError, match=r"model\.width"):
        resolve({**OWN, "model": {"name": "own_parts:build", "width": "wide"}})


def test_a_run_remembers_versions_and_is_evaluated_and_reported(run, tmp_path):
    assert run.result()["versions"]["own_parts:load"] == "7.1"
    opened = Run.open(run.path)
    assert evaluate_run(opened, "test")["mean"] == run.result()["test"]
    content = write_report([opened], tmp_path / "report.html")
    assert content["methods"][0]["name"] == "HalfCrossEntropy"


def test_a_module_without_a_version_is_remembered_by_its_checksum(tmp_path, monkeypatch):
    module = tmp_path / "nameless.py"
    module.write_text("from own_parts import HalfCrossEntropy\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    parts = {"ce": {}, "own": {"method": "nameless:HalfCrossEntropy"}}
    run = Run.create(tmp_path / "run", resolve({**OWN, "method": "sum", "objective": {"parts": parts}}))
    checksum = hashlib.sha256(module.read_bytes()).hexdigest()[:12]
    assert train(run)["versions"]["nameless:HalfCrossEntropy"] == f"sha256:{checksum}"


def test_own_parts_are_compared_and_are_branches(tmp_path):
    shared = {key: value for key, value in OWN.items() if key != "method"}
    planned = plan_comparison(shared, ["ce", "own_parts:HalfCrossEntropy"], 1, tmp_path)
    train_many(planned)
    summary = summarize([one.run for one in planned])
    assert [found["title"] for found in summary.values()] == ["CE", "HalfCrossEntropy"]
    branches = {"ce": {}, "own": {"method": "own_parts:CenteredLogistic"}}
    recipe = resolve({**shared, "method": "soup", "branches": branches, "soup": {"share": 0.5}})
    assert set(train(Run.create(tmp_path / "soup", recipe))["branches"]) == {"start", "ce", "own"}


@pytest.mark.parametrize("name", ["own_parts:Child", "own_parts:build_child"])
def test_arguments_passed_on_are_options(name, tmp_path):
    recipe = resolve({**OWN, "data": {"name": "own_parts:load_more"}, "model": {"name": name, "scale": 3.0}})
    assert recipe.data == {"name": "own_parts:load_more", "rows": 240, "noise": 0.3, "seed": 0}
    run = Run.create(tmp_path / "run", recipe)
    train(run)
    facts = run.outcome("predictor.json", ["model"])["model"]
    assert facts == {"name": name, "num_tasks": 2, "num_inputs": 5, "scale": 3.0, "width": 6}
    with pytest.raises(RecipeError, match=r"model\.widht.*model\.width"):
        resolve({**OWN, "model": {"name": name, "widht": 3}})


def test_an_encoder_on_a_page_reads_new_files(tmp_path, monkeypatch, capsys):
    """The module of docs/training.md, in the commands that use it."""
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    (code,) = re.findall(r'title="peptides.py" }\n(.*?)```', page, re.DOTALL)
    (tmp_path / "peptides.py").write_text(code, encoding="utf-8")
    choose = random.Random(0).choices
    texts = ["".join(choose("ACDEFGHIKLMNPQRSTVWY", k=8)) for _ in range(300)]
    lines = [f"{text},{int('A' in text)}" for text in texts]
    (tmp_path / "measured.csv").write_text("\n".join(["sequence,binds", *lines]) + "\n")
    (tmp_path / "new.csv").write_text("sequence,note\nAAAACDEF,one\nCDEFGHIK,two\nCDEF GH,three\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    words = ["train", "--data", "peptides:load", "data.path=measured.csv", "--method", "ce", "model.name=mlp"]
    words += ["training.tensorboard=false", "training.device=cpu", "optimizer.lr=0.01"]
    assert main([*words, "training.steps=150"]) == 0
    assert "mmb predict" in capsys.readouterr().err
    run = "runs/peptides.load-ce-0"
    assert main(["predict", run, "--input", "new.csv", "--output", "scored.csv"]) == 0
    with open("scored.csv", encoding="utf-8") as file:
        first, second, third = csv.DictReader(file)
    assert first["note"] == "one"
    assert float(first["binding"]) > 0.5 > float(second["binding"])
    assert (third["usable"], third["problem"], third["binding"]) == ("0", "no peptide", "")
    assert main(["export", run, "--output", "exported"]) == 0
    monkeypatch.delitem(sys.modules, "peptides")
    (tmp_path / "peptides.py").write_text(code.replace("class Peptides", "class Gone"), encoding="utf-8")
    capsys.readouterr()
    assert main(["predict", run, "--input", "new.csv", "--output", "scored.csv"]) == 1
    assert "peptides:Peptides" in capsys.readouterr().err


def test_an_own_data_set_without_an_encoder_is_exported(run, tmp_path):
    assert export_run(run, tmp_path / "exported")["rows_compared"] > 0
    (tmp_path / "new.csv").write_text("x\n1\n")
    with pytest.raises(RunError, match=r"encoder.*make_dataset"):
        predict_file(run, tmp_path / "new.csv", tmp_path / "scores.csv")


def test_an_encoder_that_is_not_found_again_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(own_parts.PlaceEncoder, "to_json", lambda self: {"kind": "places"})
    data = replace(own_parts.load(), encoder=own_parts.PlaceEncoder())
    network = own_parts.build(5, 2)
    with pytest.raises(ValueError, match=r"own.*PlaceEncoder.*'places'.*import path"):
        fit(network, data, "ce", training={"steps": 2})


def test_rows_of_an_encoder_that_do_not_match_are_refused(tmp_path, monkeypatch):
    data = replace(own_parts.load(), encoder=own_parts.PlaceEncoder())
    monkeypatch.setattr(own_parts, "load", lambda: data)
    run = Run.create(tmp_path / "run", resolve({**OWN, "data": {"name": "own_parts:load"}}))
    train(run)
    new = tmp_path / "new.csv"
    new.write_text("1,2,3,4,5\n0,0,0,0,0\n")
    assert predict_file(run, new, tmp_path / "scores.csv")["rows"] == 2
    lacking = NewRows({"line": ["one"]}, torch.zeros(2, 5), [""])
    monkeypatch.setattr(own_parts.PlaceEncoder, "batches", lambda self, path: iter([lacking]))
    with pytest.raises(RunError, match=r"PlaceEncoder.*2 inputs.*1 problems"):
        predict_file(run, new, tmp_path / "scores.csv")


def test_the_command_line_finds_modules_in_the_current_folder(tmp_path, monkeypatch, capsys):
    (tmp_path / "nets_of_mine.py").write_text(
        "from torch import nn\n\n\ndef build(num_inputs: int, num_tasks: int) -> nn.Module:\n"
        '    """A linear one."""\n    return nn.Linear(num_inputs, num_tasks)\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    words = ["train", "--data", "own_parts:load", "--method", "ce", "model.name=nets_of_mine:build", "--json"]
    assert main([*words, "training.steps=4", "training.tensorboard=false", "training.device=cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["run"] == "runs/own_parts.load-ce-0"
    weights = checkpoint.load(Run.open(found["run"]).best_checkpoint())["job"]["model"]
    assert {name: tuple(value.shape) for name, value in weights.items()} == {"weight": (2, 5), "bias": (2,)}


MINE = """from torch import nn

__version__ = "1.5"


def build(num_inputs: int, num_tasks: int) -> nn.Module:
    return nn.Linear(num_inputs, num_tasks)
"""


@pytest.fixture
def own_run(tmp_path, monkeypatch):
    """A finished run, and a function that replaces the text of the module of its network."""
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "versioned_nets.py"

    def replace_text(text):
        path.write_text(text)
        for cached in path.parent.glob("__pycache__/versioned_nets*"):
            cached.unlink()
        sys.modules.pop("versioned_nets", None)

    replace_text(MINE)
    run = Run.create(tmp_path / "run", resolve({**OWN, "model": {"name": "versioned_nets:build"}}))
    train(run)
    yield run, replace_text
    sys.modules.pop("versioned_nets", None)


def test_another_version_of_a_part_is_warned_of(own_run):
    run, replace_text = own_run
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Run.open(run.path)
    replace_text(MINE.replace("1.5", "1.6"))
    with pytest.warns(UserWarning, match=r"versioned_nets:build is 1\.6, and was 1\.5"):
        Run.open(run.path)
    (run.path / "result.json").unlink()  # also of a run that is not finished
    with pytest.warns(UserWarning, match=r"versioned_nets:build is 1\.6, and was 1\.5"):
        Run.open(run.path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("build = 3", "is a int"),
        ("1 / 0", "raises ZeroDivisionError"),
        ("def (", "raises SyntaxError"),
        ("raise ValueError('no')", "raises ValueError: no"),
        ("import no_such_module", "No module named 'no_such_module'"),
    ],
)
def test_a_part_that_cannot_be_imported_is_named_with_its_version(own_run, text, told):
    run, replace_text = own_run
    replace_text(text)
    with pytest.raises(RunError, match=rf"versioned_nets:build.*{told}.*versioned_nets:build 1\.5"):
        Run.open(run.path)


def test_a_network_that_has_changed_is_named(own_run):
    run, replace_text = own_run
    replace_text(MINE.replace("num_tasks)\n", "num_tasks, bias=False)\n"))
    with pytest.raises(RunError, match=r"versioned_nets:build does not fit.*(.|\n)*bias"):
        evaluate_run(run, "valid")


def test_an_own_sampler_takes_the_place_of_the_others(tmp_path):
    recipe = resolve({**OWN, "sampler": {"kind": "own_parts:EveryRow", "width": 20}})
    assert to_plain(recipe)["sampler"] == {"kind": "own_parts:EveryRow", "width": 20, "order": "first"}
    assert resolve(to_plain(recipe)) == recipe
    result = train(Run.create(tmp_path / "run", recipe))
    assert result["versions"]["own_parts:EveryRow"] == "7.1"
    assert Run.open(tmp_path / "run").recipe == recipe
    keys = key_help({**OWN, "sampler": {"kind": "own_parts:EveryRow"}})
    assert "Rows in a draw" in keys["sampler.width"]["help"]


def test_a_sampler_of_the_library_by_its_path_is_the_one_by_name(tmp_path):
    named = resolve({**OWN, "sampler": {"batch_size": 32, "rich_fraction": 0.25}})
    options = {"kind": "mmb.auc:RichRowSampler", "batch_size": 32, "rich_fraction": 0.25}
    by_path = resolve({**OWN, "sampler": options})
    results = [train(Run.create(tmp_path / str(k), one)) for k, one in enumerate((named, by_path))]
    assert results[0]["test"] == results[1]["test"]


def test_options_of_a_preset_go_with_its_sampler():
    muv = {"method": "ce", "data": {"name": "muv"}}  # its preset chooses rows rich in positives
    assert resolve(muv).sampler.batch_size == 512
    own = resolve({**muv, "sampler": {"kind": "own_parts:EveryRow"}})
    assert own.sampler.options == {"width": 16, "order": "first"}
    changed = with_overrides({**muv, "sampler": {"kind": "own_parts:EveryRow"}}, ["sampler.order=last"])
    assert resolve(changed).sampler.options["order"] == "last"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "no_such_module:Loss"}, r"no_such_module.*PYTHONPATH"),
        ({"method": "own_parts:Absent"}, r"own_parts has no 'Absent'"),
        ({"method": "own_parts:build"}, r"own_parts:build.*Objective"),
        ({"data": {"name": "own_parts:NOT_CALLABLE"}}, "function or a class"),
        ({"model": {"name": "no_such_module:build"}}, "PYTHONPATH"),
        ({"model": {"name": ":build"}}, "import path"),
        ({"model": {"name": "own_parts.build"}}, "import path.*own_parts.build:"),
        ({"data": {"name": "my_project.data"}}, "import path.*my_project.data:"),
        ({"model": {"name": "own_parts:build_untyped"}}, "'depth'.*build_untyped.*type.*depth: int"),
        ({"sampler": {"kind": "own_parts:build"}}, r"own_parts:build.*Sampler"),
        ({"sampler": {"kind": "mmb.auc:Sampler"}}, r"mmb\.auc:Sampler lacks draw"),
        ({"sampler": {"kind": "own_parts:EveryRow", "batch_size": 4}}, r"sampler\.batch_size"),
        ({"sampler": {"kind": "row"}}, r"sampler\.kind"),
    ],
)
def test_bad_import_paths_are_named(changes, message):
    with pytest.raises(RecipeError, match=message):
        resolve({**OWN, **changes})


def test_a_function_that_returns_no_data_set_is_refused(tmp_path):
    recipe = resolve({**OWN, "data": {"name": "own_parts:load_nothing"}})
    with pytest.raises(TypeError, match=r"load_nothing.*str.*Dataset"):
        train(Run.create(tmp_path / "run", recipe))


def test_a_run_whose_parts_are_gone_says_so(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "own_parts", None)  # an import of it fails
    with pytest.raises(RunError, match=r"recipe.*own_parts:HalfCrossEntropy.*PYTHONPATH"):
        Run.open(run.path)
