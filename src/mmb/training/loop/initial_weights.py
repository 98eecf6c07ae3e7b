"""Where training starts: weights from another run or a file, and block variables placed by their scores."""

from mmb.models.registry import START, build
from mmb.training.loop.evaluate import row_logits
from mmb.training.loop.randomness import derive_seed
from mmb.training.loop.setup import Setup
from mmb.training.recipes.components import complete_model
from mmb.training.runs import checkpoint
from mmb.training.runs.run import Run, RunError

_ROWS = 20_000  # enough for a quantile at a false positive rate of 1%


def prepare_start(run: Run, setup: Setup) -> None:
    """Copy the weights of the run or file to start from, and warm-start the objective, as the recipe says."""
    recipe = run.recipe
    if recipe.init_from is not None and not recipe.fresh:
        take_over(setup, Run.open(recipe.init_from), recipe.init_heads)
    elif recipe.pretrain is not None:
        take_over(setup, run.pretraining(), recipe.init_heads)
    elif recipe.model.get("weights") is not None:
        read_file(setup)
    if recipe.training.warm_start:
        rows = setup.some_training_rows("warm_start", _ROWS)
        setup.objective.warm_start(*row_logits(setup, rows))


def read_file(setup: Setup) -> None:
    """Copy the weights in the file that the recipe names; only a fresh run needs it."""
    section, seed = setup.recipe.model, derive_seed(setup.recipe.seed, "weights")
    start = {key: section[key] for key in START if key in section}
    loaded = build(**complete_model(section, setup.dataset), **start, seed=seed)
    setup.model.load_state_dict(loaded.state_dict())
    setup.objective.start_at(setup.model)


def take_over(setup: Setup, source: Run, heads: bool) -> None:
    """Copy the selected weights of another run's encoder, and of its heads too if asked for."""
    weights = checkpoint.load_selected(source.best_checkpoint())["job"]["model"]
    own = setup.model.state_dict()
    names = [name for name in own if heads or name.startswith("encoder.")]
    bad = [name for name in names if name not in weights or weights[name].shape != own[name].shape]
    if bad or not names:
        what = f"{bad[0]} is missing or has another shape there" if bad else "the network has no encoder"
        raise RunError(f"the weights of {source.path} do not fit this network: {what}")
    setup.model.load_state_dict({**own, **{name: weights[name] for name in names}})
    setup.objective.start_at(setup.model)
