"""Many blocks that share x: variance reduction of mmb against other methods, at equal oracle calls.

    python benchmarks/bilevel_blocks.py --jobs 16
    python benchmarks/bilevel_blocks.py --settings LOG --blocks 100 --seeds 27    # settings of an earlier run

Each block is a bilevel problem as in `_bilevel_data.py`, smaller: 256 samples of g and 64 of f in batches of
16, 20 lower variables. Blocks differ in all their samples. Calls are counted as in `bilevel_quadratics.py`.
Sampled methods look at a tenth of the blocks in each step, all of them once before any returns; the others
look at all blocks. Every method gets the same grid of step sizes, and of decays: of all step sizes, or of
that of x alone, since lower variables without noise need none. A setting is chosen with 100 blocks on three
seeds, by the mean logarithm of the gradient at the quarters of the budget, and reported on others, also with
1,000 blocks. Two rows of SAGA take a block's batches in a random order, each once before any returns;
all other rows draw them independently.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import mmb
from _bilevel_data import Samples, value
from _timing import machine, print_json, print_table

DIM_X, DIM_Y, LOWER, UPPER, BATCH = 10, 20, 256, 64, 16
LOWERS, UPPERS = LOWER // BATCH, UPPER // BATCH  # batches of a block
SHARE = 10  # one block in so many is looked at
PASSES = 4  # over the samples of g; with three calls for each, and one of f, this is the budget
LR = (0.3, 0.6)  # of y and v; the lower Hessians have eigenvalues up to about 1
LR_X = (0.15, 0.3, 0.6, 1.2, 2.4)
# Of x, and of y and v: step sizes are divided by 1 + decay * (fraction of the budget spent).
DECAYS = ((0.0, 0.0), (3.0, 3.0), (10.0, 10.0), (3.0, 0.0), (10.0, 0.0))
TUNING_SEEDS = (1, 11, 12)
QUARTERS = (0.25, 0.5, 0.75, 1.0)


class Setting(NamedTuple):
    """A point of the grid."""

    lr: float
    lr_x: float
    decay_x: float
    decay: float  # of lr


GRID = [Setting(lr, lr_x, *decays) for lr, lr_x, decays in itertools.product(LR, LR_X, DECAYS)]


class Blocks:
    """Samples of all blocks, and `h`, the mean over blocks of `f_i(x, y_i(x))`, in closed form."""

    def __init__(self, num_blocks: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.num_blocks = num_blocks
        self.g, self.f = (_draw(num_blocks, size, generator) for size in (LOWER, UPPER))
        self.x0 = torch.randn(DIM_X, generator=generator, dtype=torch.float64)
        self.y0 = torch.randn(num_blocks, DIM_Y, generator=generator, dtype=torch.float64)
        (g_yy, _, g_xy, g_y, _), (f_yy, f_xx, f_xy, f_y, f_x) = _mean(self.g), _mean(self.f)
        jacobian, shift = -torch.linalg.solve(g_yy, g_xy.mT), -torch.linalg.solve(g_yy, g_y)
        mixed = f_xy @ jacobian
        self.curvature = (f_xx + jacobian.mT @ f_yy @ jacobian + mixed + mixed.mT).mean(0)
        along = torch.einsum("kyz,kz->ky", f_yy, shift) + f_y
        linear = f_x + torch.einsum("kxy,ky->kx", f_xy, shift) + torch.einsum("kyx,ky->kx", jacobian, along)
        self.linear = linear.mean(0)

    def gradient_norm(self, x: Tensor) -> float:
        """`|grad h(x)|`."""
        return float((self.curvature @ x + self.linear).norm())


def _draw(num_blocks: int, size: int, generator: torch.Generator) -> Samples:
    """As `_bilevel_data.py` draws one block, but for rotations."""

    def normal(dim: int) -> Tensor:
        return torch.randn(num_blocks, size, dim, generator=generator, dtype=torch.float64)

    common = normal(DIM_Y)
    spread = torch.logspace(-1, 0, DIM_Y, dtype=torch.float64).sqrt()
    return Samples(
        lower=normal(DIM_Y) * spread,
        upper=normal(DIM_X) * torch.logspace(-1, 0, DIM_X, dtype=torch.float64).sqrt(),
        cross_upper=0.1 * common[..., :DIM_X],
        cross_lower=common,
        linear_lower=normal(DIM_Y),
        linear_upper=normal(DIM_X) + normal(DIM_X)[:, :1],  # blocks pull to different places
    )


def _mean(samples: Samples) -> tuple[Tensor, ...]:
    size = samples.lower.shape[1]
    return (
        samples.lower.mT @ samples.lower / size,
        samples.upper.mT @ samples.upper / size,
        samples.cross_upper.mT @ samples.cross_lower / size,
        samples.linear_lower.mean(1),
        samples.linear_upper.mean(1),
    )


class Method(NamedTuple):
    """A setting of the solver, and what a step costs."""

    make: Callable[[float], mmb.Hypergradient]  # from the step size of y
    calls: float  # per sample and step
    reduction: Callable[[], mmb.Saga | mmb.Storm | None] = lambda: None
    everything: bool = False  # all blocks in every step
    ordered: bool = False  # batches of a block in a random order, not drawn independently
    options: tuple[tuple[str, Any], ...] = ()  # more of them, of the solver


METHODS = {
    "mmb QuadraticSGD, SAGA": Method(mmb.QuadraticSGD, 4, lambda: mmb.Saga(UPPERS, LOWERS), ordered=True),
    "mmb QuadraticSGD, SAGA, batches as SABA's": Method(
        mmb.QuadraticSGD, 4, lambda: mmb.Saga(UPPERS, LOWERS)
    ),
    "mmb QuadraticSGD, STORM (BSVRB)": Method(mmb.QuadraticSGD, 8, lambda: mmb.Storm(0.2)),
    "mmb QuadraticSGD, momentum (v2)": Method(mmb.QuadraticSGD, 4, options=(("beta", 0.1),)),
    "mmb QuadraticSGD (SOBA on sampled blocks)": Method(mmb.QuadraticSGD, 4),
    "mmb MomentumHessian, momentum (v1)": Method(
        lambda lr: mmb.MomentumHessian(beta=0.1), 3 + DIM_Y, options=(("beta", 0.1),)
    ),
    "mmb FirstOrder, penalty 10": Method(lambda lr: mmb.FirstOrder(penalty=10, lr=lr), 3),
    "Neumann, 10 terms (StocBiO's series)": Method(lambda lr: mmb.Neumann(10, 1 / lr, randomize=False), 12),
    "double loop of 10 (as AmIGO)": Method(mmb.QuadraticSGD, 31, options=(("inner_steps", 10),)),
    "mmb QuadraticSGD, SAGA, all blocks": Method(
        mmb.QuadraticSGD, 4, lambda: mmb.Saga(UPPERS, LOWERS), everything=True, ordered=True
    ),
    "SOBA, all blocks": Method(mmb.QuadraticSGD, 4, everything=True),
    "SABA, all blocks": Method(mmb.QuadraticSGD, 4, lambda: mmb.Saga(UPPERS, LOWERS), everything=True),
}


def draws(num_blocks: int, sampled: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Blocks: all of them once, in random order, before any returns."""
    while True:
        yield from torch.randperm(num_blocks, generator=generator).split(sampled)


def run(data: Blocks, method: Method, setting: Setting, seed: int) -> list[float] | None:
    """`|grad h|` relative to the start at the quarters of the budget; None if the run breaks."""
    m, generator = data.num_blocks, torch.Generator().manual_seed(seed)
    sampled = m if method.everything else m // SHARE
    budget = 4 * PASSES * m * LOWER
    spent = method.calls * sampled * BATCH  # in a step
    hypergradient = method.make(setting.lr)

    def decayed(rate: float, decay: float) -> Callable[[int], float]:
        return lambda step: rate / (1 + decay * step * spent / budget)

    lr = decayed(setting.lr, setting.decay)
    if isinstance(hypergradient, mmb.QuadraticSGD | mmb.FirstOrder):
        hypergradient.lr = lr  # type: ignore[assignment, unused-ignore]
    problem = mmb.Problem(
        upper=lambda x, dual, y, batch: value(x, y, Samples(**batch)),
        lower=lambda x, y, batch: value(x, y, Samples(**batch)),
        num_blocks=m,
    )
    reduction = method.reduction()
    solver = mmb.Solver(
        problem,
        hypergradient,
        lr=decayed(setting.lr_x, setting.decay_x),
        lr_lower=lr,
        z_start="estimate",
        variance_reduction=reduction,
        **dict(method.options),
    )
    state = solver.init(data.x0, lower=data.y0)
    orders = [mmb.BatchOrder(m, size, generator) for size in (UPPERS, LOWERS)]
    start, found, steps = data.gradient_norm(data.x0), [], budget / spent
    within = torch.arange(BATCH)
    for made, blocks in enumerate(draws(m, sampled, generator), 1):
        if method.ordered:
            numbers = [order(blocks) for order in orders]
        else:
            numbers = [torch.randint(size, (sampled,), generator=generator) for size in (UPPERS, LOWERS)]
        rows = [number[:, None] * BATCH + within for number in numbers]
        batches = [
            {name: part[blocks[:, None], chosen] for name, part in samples._asdict().items()}
            for samples, chosen in zip((data.f, data.g), rows, strict=True)
        ]
        samples = tuple(numbers) if isinstance(reduction, mmb.Saga) else None
        try:
            solver.step(state, blocks, *batches, samples=samples)
        except mmb.BrokenStepError:
            return None
        if made >= QUARTERS[len(found)] * steps:
            found.append(data.gradient_norm(state.x) / start)
            if not found[-1] < 100:
                return None
            if len(found) == len(QUARTERS):
                return found
    raise AssertionError("draws are endless")


def score(found: list[float]) -> float:
    """What settings are chosen by."""
    return statistics.mean(math.log(number) for number in found)


def tune(name: str) -> Setting | None:
    """The best setting of the grid, of those that break on no seed."""
    torch.set_num_threads(1)
    problems = [(Blocks(100, seed), seed) for seed in TUNING_SEEDS]
    results = {}
    for setting in GRID:
        found = [run(data, METHODS[name], setting, seed) for data, seed in problems]
        if None not in found:
            results[setting] = statistics.mean(score(one) for one in found if one is not None)
    return min(results, key=lambda setting: results[setting]) if results else None


def report(name: str, num_blocks: int, seed: int, setting: Setting) -> list[float]:
    """The quarters of a run with a setting; infinite if it breaks."""
    torch.set_num_threads(1)
    found = run(Blocks(num_blocks, seed), METHODS[name], setting, seed)
    return found or [math.inf] * len(QUARTERS)


def chosen(log: Path) -> dict[str, Setting]:
    """The settings that the last line of a log gives."""
    found = json.loads(log.read_text().splitlines()[-1])["settings"]
    return {name: Setting(*numbers) for name, numbers in found.items()}


def show(
    blocks: list[int],
    seeds: list[int],
    settings: dict[str, Setting],
    runs: dict[tuple[str, int, int, Setting], list[float]],
) -> None:
    """Print the tables, and the line for programs."""
    result: dict[str, Any] = {"benchmark": "bilevel_blocks", "machine": machine(), "settings": settings}
    for m in blocks:
        rows = {
            name: [
                statistics.median(column)
                for column in zip(*(runs[name, m, seed, setting] for seed in seeds), strict=True)
            ]
            for name, setting in settings.items()
        }
        result[str(m)] = {name: [round(number, 5) for number in row] for name, row in rows.items()}
        print_table(
            f"{m:,} blocks: |grad h| relative to the start after fractions of the budget, "
            f"median of {len(seeds)} seeds",
            ["", "calls/step", "25%", "50%", "75%", "100%", "lr", "lr of x", "decay of x", "of y, v"],
            [
                [name, f"{METHODS[name].calls:g}", *(f"{number:.4f}" for number in row)]
                + [f"{number:g}" for number in settings[name]]
                for name, row in rows.items()
            ],
        )
    print_json(result)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[""], help="methods whose names start so")
    parser.add_argument("--blocks", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--seeds", type=int, default=9, help="problems that are reported on")
    parser.add_argument("--settings", type=Path, help="a log whose settings are taken, none being tuned")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, one thread each")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = [name for name in METHODS if name.startswith(tuple(options.only))]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        found = pool.map(tune, names, chunksize=1) if options.settings is None else []
        settings = {name: one for name, one in zip(names, found, strict=False) if one is not None}
        if options.settings is not None:
            settings = {name: one for name, one in chosen(options.settings).items() if name in names}
        seeds = [seed for seed in range(2, options.seeds + 5) if seed not in TUNING_SEEDS][: options.seeds]
        tasks = [
            (name, m, seed, setting)
            for m in options.blocks
            for name, setting in settings.items()
            for seed in seeds
        ]
        runs = dict(zip(tasks, pool.starmap(report, tasks, chunksize=1), strict=True))
    show(options.blocks, seeds, settings, runs)


if __name__ == "__main__":
    main()
