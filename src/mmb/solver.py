"""The paper's two single-loop algorithms."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from mmb import validation
from mmb._compile import compile_alone
from mmb._renamed import renamed_arguments
from mmb.diagnostics import Info, any_bad
from mmb.distributed import Shard
from mmb.dual_projection import project_dual
from mmb.hypergradients import Hypergradient
from mmb.modules import as_variable
from mmb.oracles import Oracles
from mmb.problem import Problem
from mmb.schedules import Schedule, value_at
from mmb.state import State
from mmb.step_values import Rate, StepSizes, Update
from mmb.torch_optimizers import move_with
from mmb.trees import (
    Tree,
    add_scaled,
    all_finite,
    blend,
    block_norm,
    blocks_finite,
    gather,
    norm,
    scatter_,
    tree_leaves,
    tree_map,
)
from mmb.variance_reduction import ReducedOracles, VarianceReduction, by_name
from mmb.variance_reduction.base import Samples
from mmb.variance_reduction.room import check_room

_TINY = 1e-30  # keeps 0 / 0 out of the dual residual when a schedule has reached zero


class Solver:
    r"""Single-loop stochastic algorithms for multi-block min-max bilevel problems.

    Each step touches only the sampled blocks $I_t$:

    $$
    \alpha_i &\leftarrow \Pi_A[\alpha_i + \eta_1 \nabla_\alpha f_i] \\
    y_i &\leftarrow y_i - \eta_2 \nabla_y g_i \\
    \Delta &= \frac{1}{|I_t|} \sum_{i \in I_t} \nabla_x f_i
    - \nabla_{xy} g_i [\nabla_{yy} g_i]^{-1} \nabla_y f_i
    \quad \text{(estimated, from the values before the two updates)} \\
    z &\leftarrow (1-\beta_0) z + \beta_0 \Delta, \qquad x \leftarrow x - \eta_0 z
    $$

    [`MomentumHessian`][mmb.hypergradients.MomentumHessian] gives the paper's Algorithm 1,
    [`QuadraticSGD`][mmb.hypergradients.QuadraticSGD] its Algorithm 2.

    Args:
        problem: The problem.
        hypergradient: How the implicit part is estimated; None only if the problem has no lower level.
        lr: Step size of `x`; a number, or a function of the step. Not with `optimizer`.
        lr_dual: Step size of the duals, likewise. Needed if there are duals.
        lr_lower: Step size of the lower variables, likewise. Needed if there is a lower level.
        beta: The paper's `beta_0` in (0, 1], the weight of the NEWEST estimate in `z`: 1 is plain SGD. With
            `z_start="estimate"`, `x` moves as with `torch.optim.SGD(momentum=1-beta, dampening=1-beta)`.
            Ignored with `optimizer`, as is `z_start`.
        z_start: `"zero"`, or `"estimate"` to start `z` at the first `Delta`, as torch does.
        optimizer: Moves `x` instead of the built-in moving average `z`: a function from a list of tensors to
            a `torch.optim.Optimizer`, such as `functools.partial(torch.optim.Adam, lr=1e-3)`.
        variance_reduction: [`Storm`][mmb.Storm], [`Saga`][mmb.Saga], or their names in lower case for their
            defaults; None takes derivatives of batches as they are.
        inner_steps: More than 1 makes the naive double loop: that many updates of the sampled blocks on the
            same batches before every step of `x`.
        check_every: Steps between checks for NaN, infinity and indefinite Hessians, each made before anything
            is written; 0 is never. On a GPU a check waits for the device. With `optimizer`, a checked step
            copies `x` and the optimizer's state, to put them back if `x` is not finite after it.
        compile: Compile the computation of a step with `torch.compile`.
        shard: The blocks of this process if blocks are divided among processes (`mmb.distributed.Shard`);
            None if this process has them all.
    """

    @renamed_arguments(momentum="beta")
    def __init__(
        self,
        problem: Problem,
        hypergradient: Hypergradient | None = None,
        *,
        lr: Schedule | None = None,
        lr_dual: Schedule | None = None,
        lr_lower: Schedule | None = None,
        beta: Schedule = 1.0,
        z_start: Literal["zero", "estimate"] = "zero",
        optimizer: Callable[[list[Tensor]], torch.optim.Optimizer] | None = None,
        variance_reduction: VarianceReduction | Literal["storm", "saga"] | None = None,
        inner_steps: int = 1,
        check_every: int = 1,
        compile: bool = False,
        shard: Shard | None = None,
    ) -> None:
        rates = {"lr": lr, "lr_dual": lr_dual, "lr_lower": lr_lower, "beta": beta}
        validation.check_solver(
            problem, hypergradient, rates, z_start, optimizer, inner_steps, check_every, shard
        )
        self.problem = problem
        self.hypergradient = hypergradient
        self.lr, self.lr_dual, self.lr_lower, self.beta = lr, lr_dual, lr_lower, beta
        self.z_start = z_start
        self.optimizer = optimizer
        self.variance_reduction = by_name(variance_reduction)
        validation.check_reduction(self.variance_reduction, inner_steps, shard)
        one = torch.zeros(1, 1)  # stands for what a block has
        self._reduced = validation.described(
            self.variance_reduction and self.variance_reduction.init(self._calls, 1, one, one, one), 1
        )
        self.inner_steps = inner_steps
        self.check_every = check_every
        self.shard = shard
        self._remembered: list[str] | None = None  # names of the estimator's memory, once seen
        self._compiled = compile
        self._compute = compile_alone(self._update) if compile else self._update

    def init(
        self,
        x0: Tree,
        *,
        dual: Tree = None,
        lower: Tree = None,
        generator: torch.Generator | None = None,
    ) -> State:
        """Make the state before the first step; the tensors passed are copied.

        Args:
            x0: The shared variable: a tensor, a dict of tensors, or a module, whose trainable parameters are
                taken.
            dual: Duals of all blocks, leading axis `m`; None for a problem without duals. With a
                shard: of its blocks alone.
            lower: Lower variables of all blocks, likewise; None without lower level.
            generator: Randomness of estimators that draw; None makes one, seeded with 0.

        Returns:
            The state, to be passed to `step`, which changes it in place.

        Raises:
            TypeError: If an argument is of the wrong kind.
            ValueError: If an argument does not go with the problem.
            mmb.memory.NoRoomError: If what variance reduction remembers does not fit in memory.
        """
        x0 = as_variable(x0)
        validation.check_start(self.problem, x0, dual, lower, self.lr_dual, self._num_own)
        x, dual, lower = (tree_map(_copy, tree) for tree in (x0, dual, lower))
        device = tree_leaves(x)[0].device
        optimizer = None if self.optimizer is None else self.optimizer(tree_leaves(x))
        if self.optimizer is not None:
            validation.check_optimizer(optimizer)
        memory = self._memory(lower)
        self._remembered = list(memory)
        return State(
            x=x,
            dual=dual,
            lower=lower,
            memory=memory,
            z=tree_map(torch.zeros_like, x) if self.optimizer is None else None,
            last_visit=torch.full((self._num_own,), -1, device=device),
            step=0,
            optimizer=optimizer,
            generator=torch.Generator().manual_seed(0) if generator is None else generator,
            shared=self._shared(x, dual, lower),
        )

    @torch.no_grad()
    def step(
        self,
        state: State,
        blocks: Tensor,
        upper_batch: Any,
        lower_batch: Any = None,
        *,
        weights: Tensor | None = None,
        samples: Samples | None = None,
    ) -> Info:
        """Make one step on the sampled blocks.

        Args:
            state: The state, changed in place; left as it was if anything raises (except for what an
                optimizer that raises has moved in a step that is not checked).
            blocks: `I_t`: different block numbers, a LongTensor [k]. With a shard: the drawn blocks that it
                owns, perhaps none; every process must make the step.
            upper_batch: Batches of `f`: a tensor or nested dicts, lists, tuples of tensors, leading axis k.
            lower_batch: Batches of `g`, likewise; None without lower level.
            weights: Positive weight of each sampled block in `Delta`, [k], which is then
                `1/k sum_i weights_i Delta_i`; for blocks sampled with unequal probability or of
                unequal importance. None is one each.
            samples: For `Saga`: the numbers of the blocks' batches of `f` and of `g`, [k] each.

        Returns:
            Measurements of the step.

        Raises:
            ValueError: If an argument has the wrong shape, a block is out of range or repeated, or the state
                was made by another kind of solver.
            mmb.BrokenStepError: If NaN, infinity or an indefinite Hessian was met.
        """
        if self._remembered is None and state.lower is not None:  # made by another solver
            self._remembered = list(self._memory(state.lower))
        remembered = (self._remembered or (), self._reduced)
        validation.check_state(self.problem, state, self.optimizer, self.lr_dual, self._num_own, *remembered)
        validation.check_step(self.problem, self.shard, state, blocks, upper_batch, lower_batch, weights)
        validation.check_samples(self.variance_reduction, samples, weights, len(blocks))
        blocks = blocks.to(state.last_visit.device)
        own = blocks if self.shard is None else blocks - self.shard.start  # their places in the state
        generator = state.generator.clone_state()  # the state's own moves on only if the step succeeds
        draw = None if self.hypergradient is None else self.hypergradient.draw(len(blocks), generator)
        here, rates = None if draw is None else draw.to(blocks.device), self._rates(state.step)
        update = self._look(state, own, (upper_batch, lower_batch), weights, samples, here, rates)
        info = Info(
            step=state.step,
            blocks=blocks,
            estimate=update.estimate,
            staleness=state.step - state.last_visit.index_select(0, own),
            **update.measures,
        )
        checked = self.check_every > 0 and state.step % self.check_every == 0
        if checked:
            info.check(unwritten=True, upper_batch=upper_batch, lower_batch=lower_batch)
        if state.optimizer is not None:  # first: it is the user's, and may raise
            move_with(state.optimizer, state.x, update.estimate, state.step, checked)
        self._write(state, own, samples, update)
        state.last_visit.index_fill_(0, own, state.step)
        state.step += 1
        if draw is not None:
            state.generator.set_state(generator.get_state())
        return info

    def _look(
        self,
        state: State,
        blocks: Tensor,
        batches: tuple[Any, Any],
        weights: Tensor | None,
        samples: Samples | None,
        draw: Tensor | None,
        rates: StepSizes,
    ) -> Update:
        """`_update` of some blocks of the state, of which nothing changes."""
        own, count = (*self._start(state, blocks, batches), *batches), len(blocks)
        past = self._past(state, blocks, samples)
        return self._compute(state.x, state.z, *own, weights, draw, rates, count, past)

    def _start(self, state: State, blocks: Tensor, batches: tuple[Any, Any]) -> tuple[Tree, Tree, Tree]:
        """Duals, lower variables and memory of some blocks, as a step takes them."""
        dual, lower, memory = (gather(part, blocks) for part in (state.dual, state.lower, state.memory))
        return dual, lower, memory

    def _update(
        self,
        x: Tree,
        z: Tree,
        dual: Tree,
        lower: Tree,
        memory: dict[str, Tree],
        upper_batch: Any,
        lower_batch: Any,
        weights: Tensor | None,
        draw: Tensor | None,
        rates: StepSizes,
        count: int,
        past: Any,
    ) -> Update:
        """Algorithms 1 and 2, lines 3 to 10, as a pure function of the sampled blocks."""
        grad_x, measures = None, {}
        if not count:  # none of this process's blocks were drawn
            grad_x, measures = tree_map(torch.zeros_like, x), {"values": tree_leaves(x)[0].new_zeros(0)}
        at: Oracles | None = None
        for _ in range(self.inner_steps if count else 0):  # once, except in the naive double loop
            at = self._oracles(x, dual, lower, upper_batch, lower_batch, weights, past, draw)
            grad_x = at.upper.grad_x
            measures = {"values": at.upper.values}
            if lower is not None:
                assert self.hypergradient is not None
                estimate = self.hypergradient.estimate(at, memory, draw, rates.estimator)
                grad_x, memory = estimate.grad_x, estimate.memory
                measures["hypergradient_residual"] = estimate.residual
                measures["indefinite"] = estimate.indefinite
                measures["lower_residual"] = block_norm(at.lower_gradient)
                lower = add_scaled(lower, -rates.lower, self._lower_direction(at, rates.lower))  # y_i^{t+1}
            if dual is not None:
                moved = self._moved_dual(at, rates.dual)  # alpha_i^{t+1}
                measures["dual_residual"] = block_norm(add_scaled(moved, -1, dual)) / (rates.dual + _TINY)
                dual = moved
        if self.check_every and count:
            changed = [part for part in (dual, lower, *memory.values()) if part is not None]
            measures["overflow"] = ~blocks_finite([measures["values"], *changed])
        reduction = None
        if isinstance(at, ReducedOracles):
            delta, reduction = at.finish(grad_x)
        elif self.shard is None:
            delta = tree_map(lambda leaf: leaf / count, grad_x)  # Delta^{t+1}
        else:
            delta, measures["broken_peers"] = self.shard.mean(grad_x, count, any_bad(measures))
        if z is not None:
            z = blend(z, delta, rates.beta)  # z_{t+1}
            x = add_scaled(x, -rates.x, z)  # x_{t+1}
            if self.check_every:
                measures["x_overflow"] = ~all_finite(x)
        measures["z_norm"] = norm(delta if z is None else z)
        return Update(dual, lower, memory, delta, z, x, measures, reduction)

    def _moved_dual(self, at: Oracles, rate: Rate) -> Tree:
        """The duals after a step."""
        return project_dual(self.problem, add_scaled(at.dual, rate, at.upper.grad_dual))

    def _lower_direction(self, at: Oracles, rate: Rate) -> Tree:
        """What the lower variables move against."""
        return at.lower_gradient

    def _oracles(
        self,
        x: Tree,
        dual: Tree,
        lower: Tree,
        upper_batch: Any,
        lower_batch: Any,
        weights: Tensor | None,
        past: Any,
        draw: Tensor | None,
    ) -> Oracles:
        if self.variance_reduction is None:
            return Oracles(self.problem, x, dual, lower, upper_batch, lower_batch, weights)
        count = len(past["first"])
        own_x = tree_map(lambda leaf: leaf.unsqueeze(0).expand(count, *leaf.shape), x)
        raw = Oracles(self.problem, own_x, dual, lower, upper_batch, lower_batch, own_x=True)
        return ReducedOracles(raw, self.variance_reduction, past, self.hypergradient, draw)

    def _past(self, state: State, blocks: Tensor, samples: Samples | None) -> Any:
        if self.variance_reduction is None:
            return None
        first = state.last_visit.index_select(0, blocks) < 0
        return self.variance_reduction.gather(state.shared["reduction"], blocks, samples, first)

    def _shared(self, x: Tree, dual: Tree, lower: Tree) -> dict[str, Any]:
        """What is remembered of all blocks together, before the first step."""
        if self.variance_reduction is None:
            return {}
        sizes = (self._calls, self._num_own, x, dual, lower)
        check_room(self.variance_reduction, *sizes)
        return {"reduction": self.variance_reduction.init(*sizes)}

    @property
    def _calls(self) -> tuple[str, ...]:
        """Names of the derivatives that a step asks for."""
        if self.hypergradient is None or self.problem.lower is None:
            return ("upper",)
        own = self.hypergradient.calls
        return ("upper", *own) if "lower" in own else ("upper", "lower_gradient", *own)

    @property
    def _num_own(self) -> int:
        return self.problem.num_blocks if self.shard is None else len(self.shard)

    def _memory(self, lower: Tree) -> dict[str, Tree]:
        if self.hypergradient is None or self.problem.lower is None:
            return {}
        return self.hypergradient.init(lower)

    def _rates(self, step: int) -> StepSizes:
        beta = value_at(self.beta, step, "beta", most=1)
        if step == 0 and self.z_start == "estimate":
            beta = 1.0
        own = {} if self.hypergradient is None else self.hypergradient.rates(step)
        rate: Callable[[float], Rate] = _scalar if self._compiled or torch.compiler.is_compiling() else float
        return StepSizes(
            x=rate(value_at(self.lr, step, "lr")),
            beta=rate(beta),
            dual=rate(value_at(self.lr_dual, step, "lr_dual")),
            lower=rate(value_at(self.lr_lower, step, "lr_lower")),
            estimator={name: rate(value) for name, value in own.items()},
        )

    def _write(self, state: State, blocks: Tensor, samples: Samples | None, update: Update) -> None:
        """Move the variables and what is remembered of them; an optimizer has already moved `x`."""
        if self.variance_reduction is not None:
            self.variance_reduction.scatter_(state.shared["reduction"], blocks, samples, update.reduction)
        if state.optimizer is None:
            tree_map(lambda old, new: old.copy_(new), state.z, update.z)
            tree_map(lambda old, new: old.copy_(new), state.x, update.x)
        scatter_(state.dual, blocks, update.dual)
        scatter_(state.lower, blocks, update.lower)
        scatter_(state.memory, blocks, update.memory)


def _scalar(rate: float) -> Tensor:
    return torch.tensor(rate, dtype=torch.float64)


def _copy(leaf: Tensor | None) -> Tensor | None:
    return None if leaf is None else leaf.detach().clone()
