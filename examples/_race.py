"""Methods side by side, each with as many seconds; what examples of the gallery draw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from torch import Tensor

POINTS = 25  # of a curve


class Race:
    """Curves over seconds, one per method.

    Args:
        seconds: How long each method may run.
        measure: From a method's variable to what is drawn; its time is not counted.
    """

    def __init__(self, seconds: float, measure: Callable[[Tensor], float]) -> None:
        self.seconds, self.measure = seconds, measure
        self.curves: dict[str, list[tuple[float, float]]] = {}
        self.last: dict[str, Tensor] = {}

    def start(self, name: str) -> None:
        """The next method begins."""
        self.name, self.paused, self.began = name, 0.0, perf_counter()
        self.curves[name] = []

    def over(self, x: Tensor) -> bool:
        """Note where the method is, and say whether its time is up."""
        now = perf_counter()
        seconds, curve = now - self.began - self.paused, self.curves[self.name]
        up = seconds > self.seconds
        if up or not curve or seconds > curve[-1][0] + self.seconds / POINTS:
            curve.append((seconds, self.measure(x.detach())))
            self.last[self.name] = x.detach().clone()
        self.paused += perf_counter() - now
        return up

    def ends(self) -> dict[str, float]:
        """The last number of every method."""
        return {name: curve[-1][1] for name, curve in self.curves.items()}

    def draw(self, path: Path, ylabel: str, yscale: str = "linear") -> None:
        """Draw the curves."""
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
        for name, curve in self.curves.items():
            axes.plot(*zip(*curve, strict=True), label=name)
        axes.set(xlabel="seconds", ylabel=ylabel, yscale=yscale)
        axes.legend()
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        pyplot.close(figure)
