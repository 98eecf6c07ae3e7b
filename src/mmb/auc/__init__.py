"""Objectives for multi-task AUC and partial AUC: a model and a label matrix with gaps is all they need."""

from mmb.auc.baselines import SOPA, CrossEntropy, Focal, MiniBatchPartialAUC, SOPAs
from mmb.auc.batches import Batch, DenseBatch, TaskBatch
from mmb.auc.compositional.heads import HeadCompositionalAUC
from mmb.auc.compositional.whole_network import CompositionalAUC
from mmb.auc.labels import Labels
from mmb.auc.minmax import MinMaxAUC
from mmb.auc.objective import Objective
from mmb.auc.pairwise import PairwisePartialAUC
from mmb.auc.partial import PartialAUC
from mmb.auc.sampling import RichRowSampler, TaskSampler

__all__ = [
    "SOPA",
    "Batch",
    "CompositionalAUC",
    "CrossEntropy",
    "DenseBatch",
    "Focal",
    "HeadCompositionalAUC",
    "Labels",
    "MinMaxAUC",
    "MiniBatchPartialAUC",
    "Objective",
    "PairwisePartialAUC",
    "PartialAUC",
    "RichRowSampler",
    "SOPAs",
    "TaskBatch",
    "TaskSampler",
]
