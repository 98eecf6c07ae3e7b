"""Step sizes over a run, as functions of the step alone, so that there is nothing to save."""

from mmb.schedules import half_cosine
from mmb.training.recipes.recipe import ScheduleSettings

_START, _RISE = 1 / 25, 0.3  # of "one_cycle", as in torch.optim.lr_scheduler.OneCycleLR


def step_size_factor(settings: ScheduleSettings, step: int, steps: int, steps_per_epoch: int) -> float:
    """The factor of step sizes after `step` of `steps` steps.

    With `t = step / steps`:

    - constant: 1.
    - step: `factor ** (number of milestones <= step / steps_per_epoch)`.
    - cosine: `(1 + cos(pi t)) / 2`.
    - one_cycle: half a cosine from 1/25 to 1 while `t < 0.3`, then half a cosine to 0.

    All but one_cycle rise linearly over the first `warmup` steps on top of that.
    """
    if settings.name == "one_cycle":
        rise = _RISE * steps
        if step < rise:
            return _START + (1 - _START) * half_cosine(1 - step / rise)
        return half_cosine((step - rise) / max(steps - rise, 1))
    factor = 1.0
    if settings.name == "step":
        factor = settings.factor ** sum(step >= epoch * steps_per_epoch for epoch in settings.milestones)
    elif settings.name == "cosine":
        factor = half_cosine(step / steps)
    return factor * min(1.0, (step + 1) / settings.warmup) if settings.warmup else factor
