"""What objectives share that compare each positive with all rows of its task, and keep variables for it."""

from mmb.auc.score_objective import ScoreObjective


class PerPositiveObjective(ScoreObjective):
    """An objective with variables for each positive; batches must carry `rows`."""

    capacity: int | None = None  # positives of a batch that are compared; None is all

    def reserve(self, positives: int) -> None:
        """Compare this many positives of every batch."""
        self.capacity = positives
