"""Compositional training: AUC after one cross-entropy step of each task."""
