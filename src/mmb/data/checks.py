"""What may be wrong with a data set that can be loaded: said before training, and by `mmb data describe`."""

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from mmb._names import OWN_DATA, first_few
from mmb.data.dataset import SPLITS, Dataset
from mmb.data.inputs.column_kinds import Category, Hashed, Number
from mmb.data.inputs.column_roles import may_be_owner
from mmb.data.inputs.columns import ColumnEncoder

_CHUNK = 1 << 16  # rows hashed at a time
_LOOKED_AT = 100_000  # rows, for identifiers
_ID = re.compile(r"(^|_|\W)(id|key|index|row|nr|no|number)$|[a-z]ID$|^unnamed", re.IGNORECASE)


def find_problems(dataset: Dataset, section: str = "", most: float = math.inf) -> list[str]:
    """Sentences about parts and tasks that cannot be measured, rows that leak or were left out, identifiers.

    Args:
        dataset: The data.
        section: What goes before keys in advice: `data.` where a recipe is typed.
        most: Numbers among the inputs that are looked at. With more, repeated rows are not looked for; with
            0, inputs are not touched.
    """
    row = dataset.inputs[torch.zeros(1, dtype=torch.int64)] if len(dataset) and most else None
    size = row.numel() if isinstance(row, Tensor) else 0
    found = [*_empty(dataset), *_unmeasured(dataset, section)]
    found += _repeated(dataset, section, bool(size) and size * len(dataset) <= most)
    found += [*_left_out(dataset), *_owners(dataset, section)]
    if isinstance(dataset.encoder, ColumnEncoder) and size:
        found += _identifiers(dataset, dataset.encoder, section, int(min(_LOOKED_AT, most / size)))
    return found


def _empty(dataset: Dataset) -> Iterator[str]:
    """Parts without rows."""
    for part, what in (("valid", "weights are selected"), ("test", "the result is measured")):
        if len(dataset) and not len(dataset.split[part]):
            yield f"there are no {part} rows, by which {what}"


def _unmeasured(dataset: Dataset, section: str) -> Iterator[str]:
    """Tasks that lack a class in a part."""
    divided = [part for part in SPLITS if len(dataset.split[part]) and part not in _own_files(dataset)]
    rows = torch.cat([torch.empty(0, dtype=torch.int64), *(dataset.split[part] for part in divided)])
    enough = (dataset.labels[rows.to(dataset.device)] == 1).sum(0) >= len(divided)  # positives, to divide
    for part in SPLITS:
        labels = dataset.labels[dataset.split[part].to(dataset.device)]
        lacking = [(labels == value).any(0).logical_not_() for value in (1, 0)]
        tasks = (lacking[0] | lacking[1]).nonzero().flatten().tolist()
        if tasks and len(labels):
            names = first_few([dataset.task_names[task] for task in tasks])
            what = "trained on" if part == "train" else "measured"
            helps = part in divided and bool((lacking[0] & enough).any())
            helps &= dataset.name in OWN_DATA and dataset.details.get("split") in ("random", "scaffold")
            advice = f"; {section}split=stratified divides them evenly" if helps else ""
            yield (
                f"{len(tasks)} of {len(dataset.task_names)} tasks have no positive or no negative among the "
                f"{part} rows and cannot be {what}: {names}{advice}"
            )


def _repeated(dataset: Dataset, section: str, look: bool) -> Iterator[str]:
    """Rows with the same inputs as a training row, if they are known, or are to be looked for."""
    found: dict[str, list[int]] | None = dataset.details.get("repeated_rows")
    if found is None:
        found = _find_repeated(dataset) if look else {}
    for part, rows in found.items():
        if rows:
            given = dataset.details.get("split") == "given" or part in _own_files(dataset)
            advice = "" if given else f", or keep them together with {section}group=COLUMN"
            yield (
                f"{len(rows)} of {len(dataset.split[part])} {part} rows have the same inputs as a training "
                f"row ({_named(dataset, rows)}): remove them{advice}"
            )


def _find_repeated(dataset: Dataset) -> dict[str, list[int]]:
    hashes = {part: _hashes(dataset, dataset.split[part]) for part in SPLITS}
    shared = {part: torch.isin(hashes[part], hashes["train"]) for part in SPLITS[1:]}
    return {part: dataset.split[part][found].tolist() for part, found in shared.items()}


def _own_files(dataset: Dataset) -> Sequence[str]:
    """Parts that have a file of their own."""
    own: Sequence[str] = dataset.details.get("own_files", ())
    return own


def _named(dataset: Dataset, rows: Sequence[int]) -> str:
    """The first of some rows; where there are several files, those in the first file that has any."""
    numbers, name = [row + 1 for row in rows], ""
    for path, size in dataset.details.get("files", ()):
        if here := [number for number in numbers if number <= size]:
            numbers, name = here, f" of {Path(path).name}"
            break
        numbers = [number - size for number in numbers]
    return f"rows {first_few(numbers)}{name}"


def _hashes(dataset: Dataset, rows: Tensor) -> Tensor:
    """A number `[n]` for the inputs of each row, the same for the same inputs and hardly ever for others."""
    found = [torch.empty(0, dtype=torch.int64)]
    generator = torch.Generator().manual_seed(0)
    weights = None
    for chunk in torch.split(rows, _CHUNK) if len(rows) else ():
        inputs = dataset.batch(chunk).cpu().flatten(1).float() + 0.0  # no negative zeros
        bits = inputs.contiguous().view(torch.int32).long()
        if weights is None:
            weights = torch.randint(-(2**62), 2**62, bits.shape[1:], generator=generator) * 2 + 1
        mixed = (bits + 0x9E3779B9) * weights
        found.append(((mixed ^ (mixed >> 29)) * weights.flip(0)).sum(1))
    return torch.cat(found)


def _left_out(dataset: Dataset) -> Iterator[str]:
    """Rows that could not be read."""
    unreadable = dataset.details.get("unusable_rows", ())
    if unreadable:
        yield (f"{len(unreadable)} rows cannot be read and belong to no part: {_named(dataset, unreadable)}")


def _identifiers(dataset: Dataset, encoder: ColumnEncoder, section: str, most: int) -> Iterator[str]:
    """Columns whose cells say which row it is, or, by their name, whom it belongs to."""
    inputs = dataset.batch(torch.arange(min(len(dataset), most))).cpu().double()
    if len(inputs) < 20:
        return
    for place, column in _places(encoder):
        if type(column) is Number:
            values = inputs[:, place] * column.scale + column.mean
            whole = values.round()
            tolerance = 1e-6 * max(1.0, abs(column.mean), column.scale * float(inputs[:, place].abs().max()))
            if bool(((values - whole).abs() > tolerance).any()):
                continue
            different = len(torch.unique(whole))
            counting = float(whole.max() - whole.min()) < 1.5 * len(whole)
            if different == len(whole) and (counting or _ID.search(column.name)):
                yield (
                    f"column {column.name!r} has another whole number in every row, so it looks like an "
                    f"identifier: leave it out with {shlex.quote(f'{section}drop={column.name}')}"
                )
        elif isinstance(column, Category):
            different = len(column.categories)
        else:
            continue
        if may_be_owner(column.name, different, len(inputs)):
            advice = f"{_whole_groups(column.name, section)}, and does not learn from it"
            yield f"column {column.name!r} has {different} values in {len(inputs)} rows: {advice}"


def _owners(dataset: Dataset, section: str) -> Iterator[str]:
    """Columns that are not learned from, and may say whom a row belongs to."""
    if dataset.details.get("split") != "given":
        for name, different in dataset.details.get("owners", {}).items():
            yield f"column {name!r} has {different} values: {_whole_groups(name, section)}"


def _whole_groups(name: str, section: str) -> str:
    return (
        f"if it says whom a row belongs to, {shlex.quote(f'{section}group={name}')} keeps rows of the same "
        "one in the same part"
    )


def _places(encoder: ColumnEncoder) -> Iterator[tuple[int, Number | Category | Hashed]]:
    place = 0
    for column in encoder.columns:
        yield place, column
        place += len(column.feature_names)
