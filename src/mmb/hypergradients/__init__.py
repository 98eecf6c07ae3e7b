"""Estimators of the hypergradient, one per file, behind one interface.

| estimator | for | remembers per block | second derivatives |
|---|---|---|---|
| `MomentumHessian` (v1) | few lower variables | a d x d matrix | the full Hessian |
| `QuadraticSGD` (v2) | many lower variables | a vector | one Hessian-vector product |
| `Identity` | lower Hessian = identity | nothing | one cross product |
| `Exact` | reference, few variables | nothing | the full Hessian |
| `ConjugateGradient` | accurate batches | nothing | one product per iteration |
| `Neumann` | comparison with the literature | nothing | one product per term |
| `FirstOrder` | when second derivatives are not available | a vector | none |
"""

from mmb.hypergradients.base import Estimate, Hypergradient
from mmb.hypergradients.conjugate_gradient import ConjugateGradient
from mmb.hypergradients.exact import Exact
from mmb.hypergradients.first_order import FirstOrder
from mmb.hypergradients.identity import Identity
from mmb.hypergradients.momentum_hessian import MomentumHessian
from mmb.hypergradients.neumann import Neumann
from mmb.hypergradients.quadratic_sgd import QuadraticSGD

__all__ = [
    "ConjugateGradient",
    "Estimate",
    "Exact",
    "FirstOrder",
    "Hypergradient",
    "Identity",
    "MomentumHessian",
    "Neumann",
    "QuadraticSGD",
]
