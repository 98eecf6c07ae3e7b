"""Files of new rows, read as a whole."""

import torch


def read_new(encoder, path):
    """Inputs of all rows of a file, and which of them are usable."""
    batches = list(encoder.batches(path))
    usable = [not problem for batch in batches for problem in batch.problems]
    inputs = batches[0].inputs if len(batches) == 1 else torch.cat([batch.inputs for batch in batches])
    return inputs, torch.tensor(usable, dtype=torch.bool)
