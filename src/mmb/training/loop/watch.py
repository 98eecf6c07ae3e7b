"""Who is told how training goes: by default nobody; the command line draws a progress bar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmb.training.runs.run import Run


class Watch:
    """Called by the training loop; every method does nothing here."""

    def begin(self, run: Run, step: int, steps: int) -> None:
        """Training of `run` starts after `step` of `steps` steps."""

    def stepped(self, step: int, numbers: dict[str, float]) -> None:
        """So many steps are done; means of what the objective returned since the last call."""

    def evaluated(self, step: int, valid: dict[str, float]) -> None:
        """Metrics on the validation rows."""

    def end(self, run: Run, result: dict[str, Any]) -> None:
        """Training of `run` is over."""

    def note(self, message: str) -> None:
        """Something worth knowing before training starts."""

    def say(self, message: str) -> None:
        """Something the user should know."""
