"""What people type works, or is answered with the key."""

import gzip
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mmb
from mmb import _key_meanings
from mmb._key_meanings import key_of, meant_key
from mmb.cli.known_keys import FILE, keys_of, table
from mmb.cli.make_keys import make_table
from mmb.cli.named_files import check_files
from mmb.cli.parser import parse
from mmb.cli.usage import UsageError
from mmb.cli.words import DEFAULT_METHOD

HOME = Path.home()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("id,age,sick\n1,2,0\n")
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    (tmp_path / "m.csv").write_text("SMILES,active\nCCO,1\n")
    (tmp_path / "c.csv").write_text("id,canonical_smiles,active\nA,CCO,1\n")
    assays = [f"assay_{k}" for k in range(30)]
    cells = "".join(f"{k + 5}," + ",".join([str(k)] * 30) + "\n" for k in range(2))
    (tmp_path / "wide.csv").write_text(f"a,{','.join(assays)}\n{cells}")
    (tmp_path / "scans.csv").write_text("scan,sick\na.PNG,1\nb.jpg,0\n")
    (tmp_path / "gaps.csv").write_text("scan,sick\na.PNG,1\n,0\nb.jpg,0\nc.svg,1\nd.png,0\n")
    (tmp_path / "two.csv").write_text("id,age,sick,dead,sex\n1,2,0,yes,0\n2,1,1,,0\n3,3,,no,0\n")
    for name in ("UPPER.CSV", "plain.txt", "parts/a.csv", "parts/b.csv", "mixed/a.csv", "mixed/b.pdf"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("id\tage\tsick\n1\t2\t0\n")
    for name in ("notes.pdf", "book.xlsx", "recipe.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "r.yaml").write_text("method: ce\ndata: {name: csv}\n")
    return tmp_path


def test_the_table_is_that_of_the_library():
    assert table() == make_table(), f"run `python -m mmb.cli.make_keys`, which writes {FILE.name}"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("train digits", {"data": "digits", "method": DEFAULT_METHOD, "overrides": []}),
        ("train digits pauc", {"data": "digits", "method": "pauc"}),
        ("train --data digits --epochs 3", {"overrides": ["training.epochs=3"]}),
        ("train digits --epochs=3 --lr 0.1", {"overrides": ["training.epochs=3", "optimizer.lr=0.1"]}),
        ("train digits --training.epochs 3 ce", {"overrides": ["training.epochs=3"], "method": "ce"}),
        ("train digits --batch-size 64", {"overrides": ["sampler.batch_size=64"]}),
        ("train digits --capture --seed 2", {"overrides": ["training.capture=true", "seed=2"]}),
        ("train digits --capture auto --seed 2", {"overrides": ["training.capture=auto", "seed=2"]}),
        ("train digits --max-fpr 0.2", {"overrides": ["training.max_fpr=0.2"]}),
        (
            "train --data csv --path t.csv --labels sick",
            {"overrides": ["data.path=t.csv", "data.labels=sick"]},
        ),
        (
            "train t.csv --labels sick",
            {"data": "table", "overrides": ["data.labels=sick", "data.path=t.csv"]},
        ),
        ("train t.parquet --labels a", {"data": "table", "recipe": None}),
        ("train UPPER.CSV --labels sick", {"data": "table", "recipe": None}),
        ("train plain.txt --labels sick", {"data": "table", "recipe": None}),
        (
            "train parts --labels sick",
            {"data": "table", "overrides": ["data.labels=sick", "data.path=parts"]},
        ),
        ("train recipe.json", {"recipe": "recipe.json"}),
        ("train ~/t.csv --labels sick", {"overrides": ["data.labels=sick", f"data.path={HOME / 't.csv'}"]}),
        (
            "train --data csv --path=~/t.csv --labels a",
            {"overrides": [f"data.path={HOME / 't.csv'}", "data.labels=a"]},
        ),
        ("predict r --input=~/a.csv --output b.csv", {"input": HOME / "a.csv"}),
        (
            "train c.csv",
            {"data": "molecules", "overrides": ["data.path=c.csv", "data.smiles=canonical_smiles"]},
        ),
        ("train scans.csv", {"data": "images", "overrides": ["data.path=scans.csv", "data.image=scan"]}),
        ("train gaps.csv", {"data": "images", "overrides": ["data.path=gaps.csv", "data.image=scan"]}),
        ("train m.csv", {"data": "molecules", "overrides": ["data.path=m.csv", "data.smiles=SMILES"]}),
        ("train r.yaml --epochs 3", {"recipe": "r.yaml", "overrides": ["training.epochs=3"]}),
        ("compare digits --methods ce,pauc --lr 1", {"data": "digits", "overrides": ["optimizer.lr=1"]}),
        ("train sampler.kind=own:Mine sampler.width=3 digits", {"data": "digits"}),
        ("train data.name=digits method=ce", {"data": None, "method": None}),
        ("train own:load own:Loss", {"data": "own:load", "method": "own:Loss"}),
        ("train own:Loss digits", {"data": "digits", "method": "own:Loss"}),
        ("train data.name=own:load own:Loss", {"data": None, "method": "own:Loss"}),
        ("train r.yaml own:Loss", {"data": None, "method": "own:Loss"}),
        ("compare own:load --methods ce,own:Loss", {"data": "own:load", "methods": "ce,own:Loss"}),
        ("data digits", {"action": "describe", "name": "digits"}),
        ("data", {"action": "list", "name": None}),
        (
            "data t.csv labels=sick",
            {"action": "describe", "name": "table", "overrides": ["path=t.csv", "labels=sick"]},
        ),
        ("data describe t.csv --labels sick", {"name": "table", "overrides": ["path=t.csv", "labels=sick"]}),
        ("data prepare c.csv", {"action": "prepare", "overrides": ["path=c.csv", "smiles=canonical_smiles"]}),
        ("data describe digits fractions=0.5,0.25,0.25", {"overrides": ["fractions=[0.5, 0.25, 0.25]"]}),
        ("train digits --hidden 64,32", {"overrides": ["model.hidden=[64, 32]"]}),
        ("train digits model.hidden=64", {"overrides": ["model.hidden=[64]"]}),
        ("train digits model.hidden=[8,8]", {"overrides": ["model.hidden=[8,8]"]}),
        ("data prepare tox21 workers=2", {"overrides": ["workers=2"]}),
    ],
)
def test_it_works(words, expected):
    options = parse(words.split())
    assert {key: value for key, value in vars(options).items() if key in expected} == expected


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("train digits --learning-rate 1", "--lr?"),
        ("train digits optimizer.learning_rate=1", "'optimizer.lr'"),
        ("train digits --batch 3", "--batch-size?"),
        ("train digits --iterations 3", "--steps?"),
        ("train digits --early-stopping 3", "--patience?"),
        ("train digits --hidden-layers 3", "--hidden?"),
        ("train digits --gpu", "--device?"),
        ("train digits --metric auc", "--select?"),
        ("train digits weight_decy=1", "'optimizer.weight_decay'"),
        ("train digits --metod ce", "'--method'"),
        ("train digits --epochs", "training.epochs=..."),
        ("train digits training.precision=float23", "'float32'"),
        ("train digits training.epochs=three", "expected a number"),
        ("train digits training.steps=1.5", "expected a whole number"),
        ("train digits model.name=mpl", "'mlp'"),
        ("train digits data.path=x", "there is no key 'data.path'"),
        ("train --data my_project.data", "my_project.data:NAME"),
        ("train digits pauk", "'pauc'"),
        ("train digits pauc own:Net", "model.name=own:Net"),
        ("train t.csv", "id, age, sick"),
        ("data describe t.csv", "--labels"),
        ("data describe table path=two.csv", "--labels sick,dead"),
        ("data book.xlsx", "save the sheet as CSV"),
        ("train digits --hidden big", "expected numbers with commas"),
        ("train", "mmb train table.csv --labels"),
        ("train two.csv", "--labels sick,dead:"),
        ("train wide.csv", "--labels 'assay_*':"),
        ("train t.csv --label sick", "--labels?"),
        ("train t.csv --labels sick dead", "--labels sick,dead"),
        ("train t.csv --labels sick --drop id age", "--drop id,age"),
        ("train book.xlsx", "save the sheet as CSV"),
        ("train https://host/t.csv --labels y", "download the file"),
        ("train notes.pdf", "nor a table by its name"),
        ("train mixed --labels sick", "not a folder of tables: it has"),
        ("data describe mixed", "it has b.pdf in it"),
        ("data notes.pdf", "nor a table by its name"),
        ("train xgboost t.csv", "is not a file, a data set"),
        ("train --data csv", "data.path"),
        ("train r.yaml r.yaml", "two recipes"),
        ("train t.csv ce pauc --labels sick", "--methods ce,pauc"),
        ("train digits --method ce pauc", "--methods ce,pauc"),
        ("train t.csv two.csv --labels sick", "two tables were given: t.csv and two.csv"),
        ("train t.csv --path two.csv --labels sick", "two tables were given"),
        ("compare digits --methods ce,pauk", "'pauc'"),
        ("data describ digits", "'describe'"),
        ("data describe digits seeed=1", "'seed'"),
        ("fit digits", "'train'"),
        ("infer", "'predict'"),
        ("tune digits", "missing: method"),
    ],
)
def test_it_is_answered_with_what_to_type(words, answer):
    with pytest.raises(UsageError) as error:
        parse(words.split())
    assert answer in str(error.value)


def test_columns_of_any_table_are_listed_if_labels_are_missing(folder):
    (folder / "s.csv").write_text("id;age;sick\n1;2;0\n")
    (folder / "z.tsv.gz").write_bytes(gzip.compress(b"id\tage\tsick\n1\t2\t0\n"))
    names = ["s.csv", "z.tsv.gz"]
    if importlib.util.find_spec("polars"):
        frame = importlib.import_module("polars").DataFrame({"id": [1], "age": [2], "sick": [0]})
        frame.write_parquet(folder / "p.parquet")
        frame.write_ipc(folder / "p.arrow")
        names += ["p.parquet", "p.arrow"]
    for name in names:
        with pytest.raises(UsageError, match=r"--labels sick.*id, age, sick"):
            parse(["train", name])
    with pytest.raises(UsageError, match="--labels NAME"):
        parse(["train", "t.parquet"])  # which is damaged


def test_a_run_nearby_is_named(folder):
    (folder / "runs" / "digits-pauc-0").mkdir(parents=True)
    (folder / "runs" / "digits-pauc-0" / "recipe.yaml").touch()
    (folder / "runs" / "digits-pauc-0" / "branches" / "ce").mkdir(parents=True)
    (folder / "runs" / "digits-pauc-0" / "branches" / "ce" / "recipe.yaml").touch()
    (folder / "lost.csv").symlink_to("gone.csv")
    for words, answer in (
        ("resume runs/digits-pauc-1", "did you mean 'runs/digits-pauc-0'"),
        ("resume runs", "inside it are runs/digits-pauc-0|"),
        ("export t.csv", "is a file"),
        ("train nowhere.csv --labels a", "no file nowhere.csv"),
        ("train T2.csv --labels a", "did you mean t.csv"),
        ("data describe nowhere.csv", "no file nowhere.csv"),
        ("train t.csv --labels a --test-path T2.csv", "data.test_path: there is no file T2.csv"),
        ("predict runs/digits-pauc-0 --input nowhere.csv --output o.csv", "--input: there is no file"),
        ("train lost.csv --labels a", "a link to gone.csv"),
        ("train nowhere.yaml", "no recipe nowhere.yaml"),
    ):
        with pytest.raises(UsageError) as error:
            check_files(parse(words.split()))
        assert answer in f"{error.value}|".replace("\\", "/")
    check_files(parse(["resume", "runs/digits-pauc-0"]))
    with pytest.raises(UsageError, match="mmb resume"):
        parse(["train", "runs/digits-pauc-0"])


def test_names_stand_for_the_keys_of_the_first_section():
    known = list(keys_of())
    assert key_of("seed", known) == "seed"
    assert key_of("max_fpr", known) == "training.max_fpr"
    assert key_of("name", known) is None
    assert meant_key("objective.learning_rate", known) == "optimizer.lr"
    assert meant_key("zzzzzz", known) is None


def test_every_meaning_is_a_key():
    assert set(_key_meanings._SAME) <= set(keys_of())
    names = [name for names in _key_meanings._SAME.values() for name in names.split()]
    assert len(names) == len(set(names))


HEAVY = ("torch", "numpy", "jsonargparse", "yaml", "rich", "sklearn", "mmb.training", "mmb.auc")


@pytest.mark.parametrize(
    "words",
    [
        *("--help", "--version", "train --help", "train --keys", "completion zsh", "trian", "train t.csv"),
        *("train digits --learning-rate 3", "train digits --epochs x", "data describe digit"),
        "predict nowhere --input a --output b",
    ],
)
def test_answers_import_nothing_heavy(words):
    script = f"""
import sys
from mmb.cli import main
try:
    code = main({words.split()!r})
except SystemExit as stop:
    code = stop.code
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(mmb.__file__).parents[1])}
    command = [sys.executable, "-c", script]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert found.stderr.splitlines()[-1] == "[]", found.stderr
