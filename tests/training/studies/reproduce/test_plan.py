"""Choices: equally many for all rows, made on validation rows alone, shown, and what the table has."""

import shutil

import pytest

from mmb.cli import main
from mmb.training import Run
from mmb.training.loop import outcome
from small_studies import call, write_study

CHOICES = {
    "ce": [{"optimizer": {"lr": 1e-7}}, {"optimizer": {"lr": 0.01}}],
    "pauc": [{}, {"optimizer": {"name": "sgd", "lr": 1e30}}],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Choices tried, with one that diverges, while looking at test rows is forbidden; then the table made."""
    folder = write_study(tmp_path_factory.mktemp("choices"), choices=CHOICES)
    seen = []

    def watched(setup, part, looking=outcome.part_logits):
        seen.append(part)
        return looking(setup, part)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcome, "part_logits", watched)
        assert call(folder, "table2", "--choose") == 1  # one diverged
    assert set(seen) == {"valid"}
    assert call(folder, "table2", "--seeds", "1") == 0
    return folder


def values(folder):
    paths = [folder / f"results/synthetic/table2/choices/ce/{index}" for index in (0, 1)]
    return [Run.open(path).result()["valid"]["pauc"] for path in paths]


def test_choices_leave_test_rows_alone(folder):
    for path in ("table2/choices/ce/0", "start/seed-100"):
        result = Run.open(folder / "results/synthetic" / path).result()
        assert result["seed"] == 100
        assert "test" not in result
        assert not any(name.startswith("test") for name in result["tasks"])
        assert "valid rows" in (folder / "runs/synthetic" / path / "table.txt").read_text()


def test_the_table_has_the_best_choice(folder):
    best = values(folder).index(max(values(folder)))
    recipe = Run.open(folder / "results/synthetic/table2/ce/seed-0").recipe
    assert recipe.optimizer.lr == CHOICES["ce"][best]["optimizer"]["lr"]
    assert (recipe.seed, recipe.training.test) == (0, True)


def test_choices_can_be_made_by_shorter_runs(tmp_path):
    choosing = {"training": {"steps": 2}}
    write_study(tmp_path, rows=["ce"], choices={"ce": [{}, {"optimizer": {"lr": 0.01}}]}, choosing=choosing)
    for arguments in (["table2", "--choose"], ["table2", "--seeds", "1"], ["--check"]):
        assert call(tmp_path, *arguments) == 0
    steps = {"table2/choices/ce/1": 2, "start/seed-100": 2, "table2/ce/seed-0": 6, "start/seed-0": 4}
    for path, number in steps.items():
        assert Run.open(tmp_path / "results/synthetic" / path).result()["steps"] == number
    assert "with seed 100, training.steps=2 and" in (tmp_path / "results/README.md").read_text()


def test_what_was_tried_is_shown(folder):
    shown = [
        f"optimizer.lr={lr}: {value:.4f}" for lr, value in zip((1e-7, 0.01), values(folder), strict=True)
    ]
    best = values(folder).index(max(values(folder)))
    shown[best] = f"**{shown[best]}**"
    lines = (folder / "results/README.md").read_text().split("\n")
    assert f"| CE | {' | '.join(shown)} |" in lines
    assert any(line.startswith("| MMB-pAUC | **as it stands: 0.") for line in lines)


def test_a_choice_that_diverged_is_out(folder):
    kept = folder / "results/synthetic/table2/choices/pauc/1"
    assert (kept / "failed.txt").read_text().startswith("TrainingError: ")
    assert "optimizer.lr=1e+30: failed |" in (folder / "results/README.md").read_text()


def test_checking_covers_choices(folder, capsys):
    assert call(folder, "--check") == 0
    paths = [folder / f"results/synthetic/table2/choices/ce/{index}/result.json" for index in (0, 1)]
    texts = [path.read_text() for path in paths]
    for path, text in zip(paths, reversed(texts), strict=True):  # now the other one is best
        path.write_text(text)
    assert call(folder, "--check") == 1
    message = capsys.readouterr().err
    assert "README.md" in message
    assert "table2/ce/seed-0" in message
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)


def test_choices_are_found_where_they_were_run(folder):
    """Also if their logs were not kept, or are to be kept elsewhere."""
    kept, moved = folder / "results", folder / "moved"
    kept.rename(moved)
    assert call(folder, "table2", "--seeds", "1") == 0
    assert (kept / "README.md").read_text() == (moved / "README.md").read_text()
    assert (kept / "synthetic/start/seed-100/result.json").exists()
    shutil.rmtree(moved)


def test_logs_of_other_choices_are_refused(folder, capsys):
    other = {**CHOICES, "ce": [{"optimizer": {"lr": 0.02}}, CHOICES["ce"][1]]}
    write_study(folder, choices=other)
    assert call(folder, "table2", "--seeds", "1") == 1
    assert "choices/ce/0 is the log of another recipe" in capsys.readouterr().err
    write_study(folder, choices=CHOICES)


def test_a_table_waits_for_its_choices(tmp_path, capsys):
    write_study(tmp_path, choices=CHOICES)
    assert call(tmp_path, "table2", "--seeds", "1") == 1
    assert "run `mmb reproduce table2 --data synthetic --choose` first" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_the_seed_of_choices_is_none_of_the_table(folder, capsys):
    write_study(folder, choices=CHOICES, choose_seed=1)
    assert call(folder, "table2", "--seeds", "2") == 1
    assert "choose_seed 1 is one of the 2" in capsys.readouterr().err
    write_study(folder, choices=CHOICES)


def test_nothing_to_choose_is_said(tmp_path, capsys):
    write_study(tmp_path)
    assert call(tmp_path, "table2", "--choose") == 1
    assert "has nothing to choose" in capsys.readouterr().err


def test_a_comparison_needs_test_rows(tmp_path, capsys):
    arguments = ["compare", "training.test=false", "--data", "synthetic", "--output", str(tmp_path / "c")]
    assert main(arguments) == 1
    assert "training.test=true" in capsys.readouterr().err
