"""How long a training takes, by a clock that the test moves."""

from mmb.cuda_graphs import WARM_UP
from mmb.training import Run, train
from mmb.training.loop.pace import Pace
from mmb.training.loop.step import Step
from tiny_runs import tiny_recipe


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def paced(step_seconds, evaluation_seconds, evaluate_every, steps):
    clock = Clock()
    pace = Pace(evaluate_every, clock=clock)
    found = []
    with pace.evaluation():
        clock.now += evaluation_seconds
    for step in range(1, steps + 1):
        clock.now += 100 if step == 1 else step_seconds  # the first one compiles
        found.append(pace.after_step(steps - step))
        if step % evaluate_every == 0:
            with pace.evaluation():
                clock.now += evaluation_seconds
    return [(step, seconds) for step, seconds in enumerate(found, 1) if seconds is not None]


def test_steps_and_evaluations_count_and_the_first_step_does_not():
    ((step, seconds),) = paced(0.1, 3.0, 30, 1000)
    assert step == 11
    assert abs(seconds - (989 * 0.1 + 989 / 30 * 3.0)) < 1e-6


def test_evaluations_among_the_first_steps_are_told_from_steps():
    ((step, seconds),) = paced(0.1, 3.0, 4, 1000)
    assert step == 11
    assert abs(seconds - (989 * 0.1 + 989 / 4 * 3.0)) < 1e-6


def test_slow_steps_are_known_early():
    ((step, seconds),) = paced(6.0, 1.0, 100, 1000)
    assert step == 2
    assert abs(seconds - (998 * 6 + 9.98)) < 1e-6


def test_a_short_training_has_no_pace():
    assert paced(0.1, 1.0, 5, 8) == []


def test_a_device_that_is_behind_is_waited_for():
    """Its steps take seconds, of which launching takes none; the first ones are slower, and do not count."""
    clock, behind = Clock(), []

    def wait():
        clock.now += sum(behind)
        behind.clear()

    pace, found = Pace(30, wait, warm_up=4, clock=clock), []
    for step in range(1, 20):
        behind.append(100.0 if step <= 4 else 2.0)
        found.append(pace.after_step(20 - step))
    assert [seconds for seconds in found if seconds is not None] == [6 * 2.0]
    assert len(behind) == 5  # after that, nothing waits


def test_steps_up_to_an_unusual_one_do_not_count():
    clock = Clock()
    pace, found = Pace(30, warm_up=2, clock=clock), []
    for step in range(1, 30):
        clock.now += 100.0 if step in (1, 5, 6) else 0.1
        if step in (5, 6):  # compile
            pace.restart()
        found.append(pace.after_step(30 - step))
    ((step, seconds),) = [(step, seconds) for step, seconds in enumerate(found, 1) if seconds is not None]
    assert step == 16
    assert abs(seconds - 14 * 0.1) < 1e-6


def test_a_training_on_a_gpu_is_timed_after_its_recording(monkeypatch, tmp_path):
    made = []

    class Noted(Pace):
        def __init__(self, *arguments, **options):
            made.append(options)
            super().__init__(*arguments, **options)

    monkeypatch.setattr("mmb.training.loop.loop.Pace", Noted)
    monkeypatch.setattr("mmb.training.loop.loop.make_step", lambda setup, *_, **__: Step(setup))
    for captured in (False, True):
        answer = (captured, None)
        monkeypatch.setattr("mmb.training.loop.setup.decide_capture", lambda *_, answer=answer: answer)
        train(Run.create(tmp_path / str(captured), tiny_recipe("ce", optimizer={"name": "sgd"})))
    assert [options["warm_up"] for options in made] == [1, WARM_UP + 1]
