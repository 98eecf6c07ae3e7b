"""What a person sees of a training: beforehand, in a terminal of 80 columns, and in a log file."""

import io

import pytest
from rich.console import Console as RichConsole

from mmb.cli.console import Console
from mmb.cli.durations import duration
from mmb.cli.progress_lines import ProgressLines
from mmb.cli.watching import ProgressObserver
from mmb.training import Run
from tiny_runs import tiny_recipe


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (89, "89 s"), (100, "2 min"), (5000, "83 min"), (9000, "2.5 h"), (200_000, "2.3 days")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_a_log_gets_a_line_now_and_then():
    said, now = [], [0.0]
    lines = ProgressLines(said.append, every=30, clock=lambda: now[0])
    runs = lines.add_task("comparing", total=4, unit="runs")
    bar = lines.add_task("pauc, seed 0", total=1000, unit="steps")
    for step in range(0, 500, 50):
        now[0] += 10
        lines.update(bar, completed=step, numbers="pauc 0.9")
    assert len(said) == 3
    assert said[0] == "comparing: 0/4 runs; pauc, seed 0: 100/1,000 steps, 4 min left, pauc 0.9"
    lines.remove_task(bar)
    now[0] += 40
    lines.update(runs, completed=1, total=2)
    assert said[-1] == "comparing: 1/2 runs, 2 min left"


def test_how_long_is_left_is_not_said_from_the_start_up():
    said, now = [], [0.0]
    lines = ProgressLines(said.append, every=30, clock=lambda: now[0])
    bar = lines.add_task("preparing molpcba", total=1, unit="rows")
    for second, done in ((33, 1000), (64, 32_000), (95, 63_000)):
        now[0] = second
        lines.update(bar, completed=done, total=120_000)
    assert said == [
        "preparing molpcba: 1,000/120,000 rows",
        "preparing molpcba: 32,000/120,000 rows, 88 s left",
        "preparing molpcba: 63,000/120,000 rows, 57 s left",
    ]
    now[0] += 40
    lines.update(bar, completed=70_000, total=0)  # of a table it is not known
    assert said[-1] == "preparing molpcba: 70,000 rows"


class Loud(Console):
    def __init__(self, terminal):
        self.file = io.StringIO()
        self.__dict__["_errors"] = RichConsole(file=self.file, force_terminal=terminal, width=80)

    def warn(self, message):
        self.file.write(f"warning: {message}\n")


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "run", tiny_recipe("pauc-pairwise"))


def follow(observer, run, seconds):
    observer.begin(run, 0, 20_000)
    observer.evaluated(0, {"auc": 0.5, "pauc": 0.51234, "ap": 0.1})
    observer.paced(run, seconds)
    observer.stepped(10_000, {"loss": 0.123456})


def test_a_bar_fits_80_columns_with_the_main_metric(run):
    console = Loud(terminal=True)
    with console.progress() as progress:
        observer = ProgressObserver(progress, console)
        follow(observer, run, 60)
        progress.refresh()
        frame = console.file.getvalue().split("\r")[-1].splitlines()[-1]
    assert "pauc 0.5123" in frame
    assert "10000/20000 steps" in frame
    assert all(len(line) < 200 for line in console.file.getvalue().splitlines())


def test_steps_and_time_are_announced(run):
    console = Loud(terminal=False)
    with console.progress() as progress:
        follow(ProgressObserver(progress, console), run, 600)
    said = console.file.getvalue()
    assert "20,000 steps" in said
    assert "about 10 min" in said
    assert "warning" not in said


def test_hours_get_a_warning_with_advice(run):
    console = Loud(terminal=False)
    with console.progress() as progress:
        follow(ProgressObserver(progress, console), run, 20_000)
    assert "warning: training takes about 5.6 h" in console.file.getvalue()
    assert "training.steps=40" in console.file.getvalue()


def test_of_many_runs_the_first_one_is_timed(run):
    console = Loud(terminal=False)
    with console.progress() as progress:
        observer = ProgressObserver(progress, console, many=True)
        for _ in range(3):
            follow(observer, run, 600)
    assert console.file.getvalue().count("each run takes about 10 min") == 1
