"""What is exported: from plain tensors to logits and probabilities, of one run or the average of several."""

import torch
from torch import Tensor, nn

from mmb.data.inputs.graphs import GraphBatch
from mmb.models.outputs import logits_of
from mmb.training.runs.averaged_runs import AveragedRuns
from mmb.training.runs.calibrate import Calibration


class RowScores(nn.Module):
    """Logits `[n, m]` of rows, whatever form the model returns them in."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of some rows."""
        return logits_of(self.model(inputs))


class GraphScores(nn.Module):
    """Logits `[G, m]` of molecules given as plain tensors; see `GraphBatch` for their meaning.

    Features are given for every atom and bond (as in the Open Graph Benchmark) instead of by codes into a
    table of one data set.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, atoms: Tensor, edges: Tensor, bonds: Tensor, graph: Tensor, graph_ptr: Tensor, edge_ptr: Tensor
    ) -> Tensor:
        """Logits of graphs with atoms `[N, 9]`, edges `[2, E]` sorted by target, bonds `[E, 3]`."""
        return logits_of(
            self.model(
                GraphBatch(
                    atom_codes=torch.arange(atoms.shape[0], device=atoms.device),
                    atom_table=atoms,
                    edges=edges,
                    bond_codes=torch.arange(bonds.shape[0], device=bonds.device),
                    bond_table=bonds,
                    graph=graph,
                    graph_ptr=graph_ptr,
                    edge_ptr=edge_ptr,
                )
            )
        )


class ExportedModel(nn.Module):
    """Logits and calibrated probabilities `[n, m]`; of several runs, the logits are averaged log-odds.

    Args:
        averaged: The runs.
        graphs: Whether inputs are graphs.
    """

    slope: Tensor
    offset: Tensor
    probability: nn.Module | None

    def __init__(self, averaged: AveragedRuns, graphs: bool) -> None:
        super().__init__()
        kind = GraphScores if graphs else RowScores
        self.scores = nn.ModuleList([kind(one.model) for one in averaged.predictors])
        slopes, offsets = [], []
        for scale in averaged.scales or []:
            slopes.append(scale.slope)
            offsets.append(scale.offset)
        self.averages = bool(slopes)
        if self.averages:
            self.register_buffer("slope", torch.stack(slopes).float())
            self.register_buffer("offset", torch.stack(offsets).float())
        self.probability = None if averaged.calibration is None else Probability(averaged.calibration)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Logits, and probabilities if they are known."""
        logits = [score(*inputs) for score in self.scores]
        scores = logits[0]
        if self.averages:
            scores = (self.slope.unsqueeze(1) * torch.stack(logits) + self.offset.unsqueeze(1)).mean(0)
        return (scores,) if self.probability is None else (scores, self.probability(scores))


class Probability(nn.Module):
    """A calibration by arithmetic alone, which every format can express."""

    slope: Tensor
    offset: Tensor
    stepped: Tensor
    start: Tensor
    rise: Tensor
    knots: Tensor
    width: Tensor

    def __init__(self, calibration: Calibration) -> None:
        super().__init__()
        self.any_steps = bool(calibration.stepped.any())
        knots, levels = calibration.logits, calibration.probabilities
        width = knots.diff(dim=1)
        for name, value in {
            "slope": calibration.slope,
            "offset": calibration.offset,
            "stepped": calibration.stepped,
            "start": levels[:, 0],
            "rise": levels.diff(dim=1),
            "knots": knots[:, :-1],
            "width": torch.where(width > 0, width, 1.0),
        }.items():
            self.register_buffer(name, value if value.dtype == torch.bool else value.float())

    def forward(self, scores: Tensor) -> Tensor:
        """Probabilities of scores `[n, m]`."""
        curve = torch.sigmoid(self.slope * scores + self.offset)
        if not self.any_steps:
            return curve
        passed = ((scores.unsqueeze(2) - self.knots) / self.width).clamp(0, 1)
        return torch.where(self.stepped, self.start + (self.rise * passed).sum(2), curve)
