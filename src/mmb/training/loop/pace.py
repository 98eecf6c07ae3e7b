"""How long training takes, judged by its first steps and evaluations."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_STEPS = 10  # timed, after the first one, which compiles and allocates
_SECONDS = 5.0  # fewer are enough if they take this long


class Pace:
    """Times the first steps of training, and the evaluations between them."""

    def __init__(self, evaluate_every: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._evaluate_every, self._clock = evaluate_every, clock
        self._done, self._started, self._known = 0, 0.0, False
        self._evaluations, self._evaluating, self._before = 0, 0.0, 0.0

    def after_step(self, left: int) -> float | None:
        """Seconds that the remaining steps take, as soon as that is known, and only once; None otherwise."""
        if self._known:
            return None
        self._done += 1
        if self._done == 1:
            self._started, self._before = self._clock(), self._evaluating
            return None
        timed, spent = self._done - 1, self._clock() - self._started - (self._evaluating - self._before)
        if timed < _STEPS and spent < _SECONDS:
            return None
        self._known = True
        evaluation = self._evaluating / max(1, self._evaluations)
        return left * (spent / timed + evaluation / self._evaluate_every)

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Around an evaluation."""
        start = self._clock()
        yield
        self._evaluations += 1
        self._evaluating += self._clock() - start
