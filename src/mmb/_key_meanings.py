"""Keys of recipes by the other names that people use for the same thing."""

import difflib
from collections.abc import Iterable, Sequence

_SAME = {
    "method": "loss objective criterion algorithm task_loss",
    "data.name": "dataset data_set data_name",
    "data.path": "file csv csv_file filename input table data_path data_file train_file",
    "data.labels": "label target targets label_column label_columns target_column outcome outcomes y classes",
    "data.features": "columns feature_columns inputs x predictors",
    "data.drop": "ignore exclude skip id id_column ids without",
    "data.smiles": "smiles_column molecule structure",
    "data.split_column": "split_col fold partition",
    "data.fractions": "split_sizes ratios val_split valid_fraction test_fraction test_size train_size",
    "model.name": "model network net architecture arch backbone encoder",
    "model.hidden": "hidden_layers hidden_layer_sizes hidden_size hidden_sizes units widths hidden_dim mlp",
    "model.width": "channels emb_dim embedding hidden_channels dim",
    "model.layers": "depth num_layers n_layers",
    "model.dropout": "drop_rate p_dropout dropout_rate",
    "model.weights": "pretrained checkpoint imagenet",
    "optimizer.lr": "learning_rate lr learningrate step_size stepsize eta alpha learn_rate",
    "optimizer.name": "optimizer optim opt",
    "optimizer.momentum": "beta0 mom",
    "optimizer.weight_decay": "wd l2 decay regularization weightdecay l2_reg",
    "optimizer.clip": "grad_clip clip_norm max_norm gradient_clipping clip_grad_norm max_grad_norm",
    "schedule.name": "scheduler lr_scheduler lr_schedule schedule annealing",
    "schedule.warmup": "warmup_steps warm_up",
    "sampler.batch_size": "batch bs batchsize minibatch rows_per_step batch_rows",
    "sampler.rich_fraction": "oversample oversampling positive_share balance sampling_rate",
    "training.epochs": "epoch num_epochs n_epochs max_epochs passes",
    "training.steps": "step iterations iters max_iter max_steps num_steps n_steps max_iterations updates",
    "training.evaluate_every": "eval_every eval_steps val_check_interval evaluation_interval validate_every",
    "training.select": "metric monitor select_by best_metric eval_metric selection score",
    "training.max_fpr": "fpr false_positive_rate target_fpr fpr_limit",
    "training.patience": "early_stopping early_stop early_stopping_rounds",
    "training.checkpoint_every": "save_every save_steps checkpoint_interval",
    "training.log_every": "log_interval logging_steps verbose print_every",
    "training.precision": "amp fp16 bf16 mixed_precision half dtype autocast",
    "training.device": "gpu cuda cpu accelerator gpus devices mps",
    "training.capture": "cuda_graph compile graphs jit",
    "seed": "random_state random_seed rng manual_seed",
    "init_from": "init finetune fine_tune start_from from_run warm",
}
_MEANINGS = {name: key for key, names in _SAME.items() for name in names.split()}
_SECTIONS = ("", "training", "optimizer", "sampler", "schedule", "data", "model", "objective", "soup")


def key_of(name: str, known: Iterable[str]) -> str | None:
    """The key that a name stands for exactly: itself, or the first one that ends in it, section by section.

    For example, `epochs` is `training.epochs`, and `seed` is `seed`, not `data.seed`.
    """
    name = name.replace("-", "_")
    ends = {key for key in known if key == name or (key.rpartition(".")[2] == name and name != "name")}
    return min(ends, key=lambda key: _SECTIONS.index(key.rpartition(".")[0].split(".")[0]), default=None)


def meant_key(name: str, known: Sequence[str]) -> str | None:
    """The key that an unknown name most likely means: by its meaning, then by its letters."""
    plain = name.replace("-", "_").lower()
    for text in (plain, plain.rpartition(".")[2]):
        if (found := _MEANINGS.get(text) or key_of(text, known)) in known:
            return found
    near = difflib.get_close_matches(plain, known, 1, 0.7)
    if near:
        return near[0]
    by_end = {key.rpartition(".")[2]: key for key in reversed(known)}
    near = difflib.get_close_matches(plain.rpartition(".")[2], list(by_end), 1, 0.7)
    return by_end[near[0]] if near else None


def no_such_key(name: str, known: Sequence[str]) -> str:
    """The message about an unknown key, with the one that is meant."""
    found = meant_key(name, known)
    if found is None and len(known) <= 12:
        return f"there is no key {name!r}; expected one of: {', '.join(known)}"
    hint = f"did you mean {found!r}?" if found else "`mmb train --keys` lists them"
    return f"there is no key {name!r}; {hint}"
