"""Problems with known answers: lower solutions, best duals, value and gradient are exact at every `x`.

| problem | duals | lower level | known besides |
|---|---|---|---|
| `Quadratic` | yes | yes | the solution, the constants of the theory |
| `Saddle` | yes | no | the solution |
| `BilevelQuadratic` | no | yes | the solution |
| `TopKThreshold` | no | a scalar per block | |
| `RobustTasks` | on a simplex | ridge heads | (nonconvex) |
"""

from mmb.known_problem import KnownProblem
from mmb.problems.quadratic import BilevelQuadratic, Quadratic, Saddle
from mmb.problems.robust_tasks import RobustTasks
from mmb.problems.top_k import TopKThreshold

__all__ = ["BilevelQuadratic", "KnownProblem", "Quadratic", "RobustTasks", "Saddle", "TopKThreshold"]
