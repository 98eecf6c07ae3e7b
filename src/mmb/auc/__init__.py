"""Objectives for multi-task AUC and partial AUC: they take a model and a label matrix that may have gaps."""

from mmb.auc.average_precision import AveragePrecision
from mmb.auc.baselines import PAUCI, SOPA, STACO, CrossEntropy, Focal, MiniBatchPartialAUC, SOPAs
from mmb.auc.batches import Batch, DenseBatch, TaskBatch
from mmb.auc.compositional.heads import HeadCompositionalAUC
from mmb.auc.compositional.whole_network import CompositionalAUC
from mmb.auc.constrained_recall import ConstrainedRecall
from mmb.auc.labels import Labels
from mmb.auc.minmax import MinMaxAUC
from mmb.auc.msvr import MSVRAveragePrecision
from mmb.auc.ndcg import NDCG
from mmb.auc.objective import Objective
from mmb.auc.pairwise import PairwisePartialAUC
from mmb.auc.partial import PartialAUC
from mmb.auc.parts.bad_values import BadValueError
from mmb.auc.parts.tracked_thresholds import ThresholdReport
from mmb.auc.parts.weighted_scores import WeightedScores
from mmb.auc.recall import FPRAtRecall, RecallAtFPR
from mmb.auc.sampling import Draw, RichRowSampler, RowDraw, Sampler, TaskDraw, TaskSampler
from mmb.auc.sharded import ShardedObjective
from mmb.auc.sum import Sum
from mmb.auc.two_way import TwoWayPartialAUC

__all__ = [
    "NDCG",
    "PAUCI",
    "SOPA",
    "STACO",
    "AveragePrecision",
    "BadValueError",
    "Batch",
    "CompositionalAUC",
    "ConstrainedRecall",
    "CrossEntropy",
    "DenseBatch",
    "Draw",
    "FPRAtRecall",
    "Focal",
    "HeadCompositionalAUC",
    "Labels",
    "MSVRAveragePrecision",
    "MinMaxAUC",
    "MiniBatchPartialAUC",
    "Objective",
    "PairwisePartialAUC",
    "PartialAUC",
    "RecallAtFPR",
    "RichRowSampler",
    "RowDraw",
    "SOPAs",
    "Sampler",
    "ShardedObjective",
    "Sum",
    "TaskBatch",
    "TaskDraw",
    "TaskSampler",
    "ThresholdReport",
    "TwoWayPartialAUC",
    "WeightedScores",
]
