"""Networks: any module with one output per task can be trained; these are the ones at hand."""

from mmb.models.multilayer_perceptron import mlp
from mmb.models.multitask import MultiTask

__all__ = ["MultiTask", "mlp"]
