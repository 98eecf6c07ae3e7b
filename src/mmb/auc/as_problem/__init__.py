"""Each objective stated as a `Problem`, so that the general solver can check it."""

from mmb._renamed import renamed_names
from mmb.auc.as_problem.compositional_problem import as_compositional_problem, lower_variables
from mmb.auc.as_problem.objective_problems import Blocks, as_blocks, as_problem

__all__ = ["Blocks", "as_blocks", "as_compositional_problem", "as_problem", "lower_variables"]
__getattr__ = renamed_names(__name__, {"as_head_problem": "as_compositional_problem"})
