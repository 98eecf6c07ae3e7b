"""How long a training takes, by a clock that the test moves."""

from mmb.training.loop.pace import Pace


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def paced(step_seconds, evaluation_seconds, evaluate_every, steps):
    clock = Clock()
    pace = Pace(evaluate_every, clock)
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
