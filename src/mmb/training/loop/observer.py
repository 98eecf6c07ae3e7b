"""What follows training: by default nothing; the command line draws a progress bar."""

from typing import Any

from mmb.training.runs.run import Run


class Observer:
    """Called by the training loop; here, every method does nothing."""

    def begin(self, run: Run, step: int, steps: int) -> None:
        """Training of `run` starts after `step` of `steps` steps."""

    def paced(self, run: Run, seconds: float) -> None:
        """After the first steps: at their pace, the rest takes about this long, evaluations included."""

    def stepped(self, step: int, numbers: dict[str, float]) -> None:
        """`step` steps are done; `numbers` are means of what the objective returned since the last call."""

    def evaluated(self, step: int, valid: dict[str, float]) -> None:
        """The validation rows have these metrics after `step` steps."""

    def end(self, run: Run, result: dict[str, Any]) -> None:
        """Training of `run` is over."""

    def note(self, message: str) -> None:
        """Something worth knowing."""

    def say(self, message: str) -> None:
        """Something the user should know."""
