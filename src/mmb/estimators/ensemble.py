"""A few networks that are averaged, each trained without another share of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from mmb.estimators.folds import assign_folds
from mmb.estimators.inputs import Rows
from mmb.estimators.network import Network, Part


class Ensemble:
    """Networks whose logits are averaged.

    Args:
        count: How many.
        seed: Of everything random.
        make: Makes one, its initial weights from torch's default generator.
    """

    def __init__(self, count: int, seed: int, make: Callable[[], Network]) -> None:
        self.seed, self.networks = seed, []
        for number in range(count):
            with _own_randomness(seed + number):
                self.networks.append(make())

    def scores(self, rows: Rows) -> Tensor:
        """Logits `[n, m]`."""
        return torch.stack([rows.scores(network.model) for network in self.networks]).mean(0)

    def cross_fit(self, part: Part, steps: int, warm_up_steps: int, batch_size: int) -> tuple[Tensor, Tensor]:
        """Train each network without its fold of the rows.

        Args:
            part: All rows.
            steps: Number of steps of each network.
            warm_up_steps: How many of them are by cross-entropy.
            batch_size: Rows of a step.

        Returns:
            Logits `[n, m]` of the rows by the network that was trained without them (the mean of all where
            none was, because the others would lack a class), and the mean of all.
        """
        fold = assign_folds(part.labels, len(self.networks), torch.Generator().manual_seed(self.seed))
        held_out = torch.zeros(part.labels.shape, dtype=torch.float64)
        average = torch.zeros_like(held_out)
        for number, network in enumerate(self.networks):
            self._train(number, part.only(fold != number), steps, warm_up_steps, batch_size, decay=True)
            scores = part.rows.scores(network.model)
            held_out[fold == number] = scores[fold == number].double()
            average += scores / len(self.networks)
        held_out[fold == -1] = average[fold == -1]
        return held_out, average

    def train(self, part: Part, steps: int, warm_up_steps: int, batch_size: int) -> None:
        """Train all networks on the same rows, at a constant step size; arguments as of `cross_fit`."""
        for number in range(len(self.networks)):
            self._train(number, part, steps, warm_up_steps, batch_size, decay=False)

    def _train(
        self, number: int, part: Part, steps: int, warm_up_steps: int, batch_size: int, decay: bool
    ) -> None:
        network = self.networks[number]
        network.see(part.labels, part.weights)
        if not bool(network.usable.any()):
            return  # nothing to learn from
        seed = self.seed + number + network.steps_done
        with _own_randomness(seed):
            network.train(
                part,
                steps=steps,
                warm_up_steps=warm_up_steps,
                batch_size=batch_size,
                generator=torch.Generator().manual_seed(seed),
                decay=decay,
            )


@contextmanager
def _own_randomness(seed: int) -> Iterator[None]:
    """Initial weights and dropout draw from torch's default generator: seed it here, put it back after."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
