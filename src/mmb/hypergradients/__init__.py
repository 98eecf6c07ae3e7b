"""Estimators of the hypergradient, one per file, behind one interface.

| estimator | for | remembers per block | second derivatives |
|---|---|---|---|
| :class:`MomentumHessian` (v1) | few lower variables | a d x d matrix | the full Hessian |
| :class:`QuadraticSGD` (v2) | many lower variables | a vector | one Hessian-vector product |
| :class:`Identity` | lower Hessian = identity | nothing | one cross product |
| :class:`Exact` | reference, few variables | nothing | the full Hessian |
| :class:`ConjugateGradient` | accurate batches | nothing | one product per iteration |
| :class:`Neumann` | comparison with the literature | nothing | one product per term |
| :class:`FirstOrder` | when second derivatives are not to be had | a vector | none |
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
