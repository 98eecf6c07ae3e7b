"""The folder of a run: checkpoints, logs, predictions, export."""
