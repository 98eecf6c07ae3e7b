"""A small data set whose inputs are streamed ahead of their use, as worker processes do."""

import torch

from mmb.auc import Labels, RichRowSampler, TaskSampler
from mmb.data import Dataset


class StreamedInputs:
    """Inputs whose stream takes rows several batches ahead, and adds noise when it yields them."""

    def __init__(self, values, ahead):
        self.values, self.ahead = values, ahead

    def __len__(self):
        return len(self.values)

    def __getitem__(self, rows):
        return self.values[rows]

    def to(self, device):
        return self

    def stream(self, batches, generator):
        waiting = []
        for rows in batches:
            waiting.append(rows)
            if len(waiting) > self.ahead:
                rows = waiting.pop(0)
                yield rows, self.values[rows] + torch.rand(len(rows), 1, generator=generator)


def streamed_data(kind, ahead):
    """A data set, the labels of its training rows, and a sampler of rows or of tasks."""
    generator = torch.Generator().manual_seed(1)
    labels = (torch.rand(60, 3, generator=generator) < 0.3).to(torch.int8)
    rows = torch.arange(60)
    split = {"train": rows[10:], "valid": rows[:5], "test": rows[5:10]}
    inputs = StreamedInputs(torch.randn(60, 2, generator=generator), ahead)
    dataset = Dataset("fake", inputs, labels, split, ("a", "b", "c"))
    train = Labels(labels[split["train"]])
    if kind == "rows":
        return dataset, train, RichRowSampler(train, 8, 0.5, generator=2)
    return dataset, train, TaskSampler(train, 2, 4, independent_lower=True, generator=2)
