"""Averages of the weights of models that share a start (model soups, Wortsman et al., ICML 2022).

Branches that start from the same weights and are trained for different objectives stay close together. So
the average of their weights is a good model, often better than each of them, at the cost of one.

    branches = {"ce": a, "auc": b, "pauc": c}  # modules, or state dicts
    found = mmb.soup.greedy(branches, lambda model: metrics.roc_auc(model(x), y, 0.1), fallback="ce")
    found.model, found.weights
"""

from mmb.soup.pseudo_values import jackknife
from mmb.soup.selection import Soup, Trial, better, evidence, greedy, uniform
from mmb.soup.states import average

__all__ = ["Soup", "Trial", "average", "better", "evidence", "greedy", "jackknife", "uniform"]
