"""Programs that `faults.py` kills in addition to commands: a Lightning Trainer, and an estimator."""

from pathlib import Path

import torch


def make_table(rows, tasks=2):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(rows, 6, generator=generator)
    scores = inputs @ torch.randn(6, tasks, generator=generator)
    return inputs, (scores + torch.randn(rows, tasks, generator=generator) > 1.5).to(torch.int8)


def train_in_lightning(folder):
    """A Trainer that continues from its newest checkpoint, and writes the weights as a table."""
    import lightning.pytorch as lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    from mmb import auc
    from mmb.lightning import Batches, ObjectiveModule
    from mmb.models import mlp

    place = Path(folder)
    inputs, labels = make_table(400)
    torch.default_generator.manual_seed(1)
    model = mlp(6, [8], 2)
    module = ObjectiveModule(model, auc.PartialAUC(labels))
    batches = Batches(auc.RichRowSampler(labels, 32, 0.5, generator=0), inputs, labels)
    keeper = ModelCheckpoint(place, "{step:08d}", every_n_train_steps=20, save_top_k=-1)
    trainer = lightning.Trainer(
        default_root_dir=place,
        accelerator="cpu",
        max_steps=120,
        callbacks=[keeper],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    newest = max(place.glob("*.ckpt"), default=None)
    trainer.fit(module, batches, ckpt_path=newest)
    values = {**model.state_dict(), **module.objective.state_dict()}
    (place / "weights.csv").write_text("\n".join(f"{k},{v.tolist()}" for k, v in values.items()))
    return int(trainer.global_step != 120)


def fit(folder):
    """Scores of an estimator."""
    from mmb.estimators import MultiTaskAUCClassifier

    inputs, labels = (values.numpy() for values in make_table(300))
    classifier = MultiTaskAUCClassifier(hidden=[16], steps=40, networks=2, random_state=0)
    scores = classifier.fit(inputs, labels).decision_function(inputs)
    (Path(folder) / "scores.csv").write_text(str(scores.tolist()))
    return 0


PROGRAMS = {"lightning": train_in_lightning, "fit": fit}
