"""How long training takes, judged by its first steps and evaluations."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_STEPS = 10  # timed, after the first ones, which compile and allocate
_SECONDS = 5.0  # fewer are enough if they take this long


class Pace:
    """Times the first steps of training, and the evaluations between them.

    Args:
        evaluate_every: Steps from one evaluation to the next.
        wait: Waits for the device, which may be behind: called before and after the steps that are timed.
        warm_up: Steps that are not timed.
        clock: Tells seconds.
    """

    def __init__(
        self,
        evaluate_every: int,
        wait: Callable[[], None] = lambda: None,
        warm_up: int = 1,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._evaluate_every, self._wait, self._warm_up, self._clock = evaluate_every, wait, warm_up, clock
        self._done, self._started, self._known = 0, 0.0, False
        self._evaluations, self._evaluating, self._before = 0, 0.0, 0.0

    def after_step(self, left: int) -> float | None:
        """Seconds that the remaining steps take, as soon as that is known, and only once; None otherwise."""
        if self._known:
            return None
        self._done += 1
        timed = self._done - self._warm_up
        if timed <= 0:
            self._wait()
            self._started, self._before = self._clock(), self._evaluating
            return None
        if timed < _STEPS and self._spent() < _SECONDS:
            return None
        self._wait()
        self._known = True
        evaluation = self._evaluating / max(1, self._evaluations)
        return left * (self._spent() / timed + evaluation / self._evaluate_every)

    def restart(self) -> None:
        """Leave out the step that was just done, and those before it."""
        self._done = min(self._done, self._warm_up - 1)

    def _spent(self) -> float:
        return self._clock() - self._started - (self._evaluating - self._before)

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Around an evaluation."""
        start = self._clock()
        yield
        self._evaluations += 1
        self._evaluating += self._clock() - start
