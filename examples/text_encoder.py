"""Texts: a transformer encoder of Hugging Face, trained for many labels of each text.

The file has a column `text` and a column per label: 1, 0, or blank if it is not known. Without a folder, the
network is small and has random weights; from the folder of a pretrained one come its tokenizer and weights.

    python examples/text_encoder.py comments.csv [FOLDER]
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import mmb.data
from mmb.models import MultiTask
from mmb.training import fit


class Encoder(nn.Module):
    """The first token's state, which stands for the whole text, of a transformer."""

    def __init__(self, transformer: nn.Module) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Features `[n, hidden_size]` of some texts."""
        return self.transformer(**inputs).last_hidden_state[:, 0]


def word_numbers(texts: list[str], length: int = 64, words: int = 5000) -> dict[str, Tensor]:
    """A plain tokenizer: numbers of the most frequent words; 0 pads, 1 begins a text, 2 is any other word."""
    counts = Counter(word for text in texts for word in text.lower().split())
    numbers = {word: k for k, (word, _) in enumerate(counts.most_common(words), 3)}
    rows = [[1, *(numbers.get(word, 2) for word in text.lower().split())][:length] for text in texts]
    padded = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    return {"input_ids": padded, "attention_mask": (padded > 0).long()}


def main(table: Path, folder: Path | None = None, width: int = 128, **sections: Any) -> dict[str, Any]:
    """Train, and return the result: test metrics are means over labels.

    Args:
        table: A CSV file with a column `text`. All other columns are labels.
        folder: A pretrained network with its tokenizer, as `save_pretrained` writes them.
        width: Of the small network.
        **sections: Sections of the recipe that differ from those below.
    """
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    texts, names = [row.pop("text") for row in rows], list(rows[0])
    labels = torch.tensor([[float(row[name] or "nan") for name in names] for row in rows])
    if folder is None:
        tokens = word_numbers(texts)
        transformer = transformers.BertModel(
            transformers.BertConfig(
                vocab_size=int(tokens["input_ids"].max()) + 1,
                hidden_size=width,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=2 * width,
            ),
            add_pooling_layer=False,
        )
    else:
        transformer = transformers.AutoModel.from_pretrained(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        tokens = dict(tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt"))
    # The model's input of some rows may be any nest of tensors: here, a dict.
    dataset = mmb.data.make_dataset(
        lambda rows: {name: values[rows] for name, values in tokens.items()}, labels, task_names=names
    )
    model = MultiTask(Encoder(transformer), transformer.config.hidden_size, len(names))
    settings: dict[str, Any] = {
        # a pretrained encoder moves slowly, its new heads do not
        "optimizer": {"name": "adamw", "lr": 1e-3, "lr_encoder": 1e-3 if folder is None else 2e-5},
        "schedule": {"name": "cosine", "warmup": 20},
        "training": {"epochs": 10, "evaluation_batch_size": 256},
        **sections,
    }
    return fit(model, dataset, "pauc", **settings)


if __name__ == "__main__":
    print(main(*map(Path, sys.argv[1:3])))
