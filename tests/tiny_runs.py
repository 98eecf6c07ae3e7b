"""Tiny recipes that train in well under a second."""

from mmb.training import merge, resolve


def tiny_recipe(method="pauc", **changes):
    fragment = {
        "method": method,
        "data": {"name": "synthetic", "rows": 300, "tasks": 4, "features": 8, "positive_rate": 0.1},
        "model": {"name": "mlp", "hidden": [8], "dropout": 0.2},
        "sampler": {"batch_size": 32, "rich_fraction": 0.25, "tasks_per_step": 2, "rows_per_task": 8},
        "training": {
            "steps": 40,
            "evaluate_every": 10,
            "checkpoint_every": 5,
            "log_every": 4,
            "tensorboard": False,
            "device": "cpu",
        },
    }
    return resolve(merge(fragment, changes))
