"""The paper's tables on a data set: recipes are run, their logs kept, and tables made from the logs alone.

A study is a folder with a recipe per method and `study.yaml`, which says what it is about. Its runs go to one
folder, with checkpoints; their logs (recipe, `metrics.jsonl`, `result.json`: small text) to another, which is
kept with the project. Everything shown is made from the latter, so that it can be made again and compared.
"""

from mmb.training.studies.reproduce.choices import choices_table
from mmb.training.studies.reproduce.jobs import train_all
from mmb.training.studies.reproduce.plan import Planned, choices_there, keep_logs, plan, plan_choices
from mmb.training.studies.reproduce.results import differences, document, write_results
from mmb.training.studies.reproduce.study import Study, names, with_logs

__all__ = [
    "Planned",
    "Study",
    "choices_table",
    "choices_there",
    "differences",
    "document",
    "keep_logs",
    "names",
    "plan",
    "plan_choices",
    "train_all",
    "with_logs",
    "write_results",
]
