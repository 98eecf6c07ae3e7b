"""Which rows, and for which tasks: task-sampled draws, rich rows, shuffled rows.

A sampler is made from labels alone and yields small index tensors on their device, without waiting for it; a
draw turns inputs into a batch.
"""

from mmb.auc.sampling.rows import RichRowSampler, RowDraw
from mmb.auc.sampling.sampler import Sampler
from mmb.auc.sampling.tasks import TaskDraw, TaskSampler

Draw = TaskDraw | RowDraw

__all__ = ["Draw", "RichRowSampler", "RowDraw", "Sampler", "TaskDraw", "TaskSampler"]
