"""The paper's tables on a data set: recipes are run, their logs kept, and tables made from the logs alone.

A study is a folder with a recipe per method and `study.yaml`, which says what it is about. Its runs go to one
folder, with checkpoints; their logs (recipe, `metrics.jsonl`, `result.json`: small text) go to another, which
is kept with the project. Everything shown is made from the logs, so that it can be made again and compared.
"""

from mmb.training.studies.reproduce.logs import keep_logs
from mmb.training.studies.reproduce.plan import choices_there, plan_choices, plan_table
from mmb.training.studies.reproduce.results import choices_table, differences, document, write_results
from mmb.training.studies.reproduce.study import TableStudy, studies_with_logs, study_names

__all__ = [
    "TableStudy",
    "choices_table",
    "choices_there",
    "differences",
    "document",
    "keep_logs",
    "plan_choices",
    "plan_table",
    "studies_with_logs",
    "study_names",
    "write_results",
]
