"""RST and G-RST as a torch optimizer around a base optimizer: coin, ascent, gamma mix, base step."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rst_tune.errors import InputError
from rst_tune.method import ascent
from rst_tune.method.ascent.rule import AscentContext, Closure, PerSample
from rst_tune.method.checks import (
    check_base,
    check_dense,
    check_numbers,
    check_per_sample,
    check_settings,
    recorded,
    wants_local_eps,
    watched,
)
from rst_tune.method.coin import toss
from rst_tune.method.memory import RngState
from rst_tune.method.passes import as_list, propagate, ranks_agree
from rst_tune.method.schedules import Schedule
from rst_tune.method.second_pass import SecondPass

__all__ = ["RST", "expected_extra_propagation"]


class RST(Optimizer):
    """Randomized sharpness-aware training: each iteration tosses a coin between the base optimizer and an ascent rule.

    g_t = g1 when X_t = 0, else g1 + gamma_gnr · (g_rule − g1), with X_t ~ Bernoulli(p(t)) (Algorithm 1 of the paper,
    and its G-RST extension); the base optimizer then steps with g_t from w. gamma_gnr = 1 is RST; p = 1 the rule
    itself; rho = 0 or gamma_gnr = 0 the base optimizer, without any second pass.

    Args:
        base: any torch optimizer. Its param_groups and state are used in place; there is no second copy.
        model: the module whose parameters `base` has; a DDP or compiled one may be given as it is.
        schedule: p(t), from `rst_tune.schedules`.
        total_steps: T. A step past T raises.
        rho: the radius of the ascent.
        gamma_gnr: the strength of the regularization in units of rho.
        rule: a name in `ascent.RULES`.
        rule_options: the options of that rule.
        seed: of the coin. X_t depends on (seed, t) alone.
        clip: the largest norm of the final gradient, or None.
        scaler: a GradScaler. Its scale, unscale_, step and update are called here.
        eps: under DDP "local" (each rank its own eps, the first pass exchanges nothing) or "global". None is "local"
            where the rule allows it.
        weight_decay_in_ascent: let eps follow g1 + weight_decay · w. The base optimizer applies its own decay anyway.
        timer: called with "pass1", "pass2" and "step" when that phase has ended.

    >>> from rst_tune import schedules
    >>> model = nn.Linear(2, 1)
    >>> base = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> opt = RST(base, model, schedule=schedules.constant(1.0), total_steps=3, rho=0.05)
    >>> loss = opt.step(lambda: model(torch.ones(4, 2)).square().mean())
    >>> opt.t, opt.pairs, opt.ascents
    (1, 2.0, 1)
    """

    def __init__(
        self,
        base: Optimizer,
        model: nn.Module,
        *,
        schedule: Schedule,
        total_steps: int,
        rho: float,
        gamma_gnr: float = 1.0,
        rule: str = "sam",
        rule_options: Mapping[str, Any] | None = None,
        seed: int = 0,
        clip: float | None = None,
        scaler: torch.amp.GradScaler | None = None,
        eps: str | None = None,
        weight_decay_in_ascent: bool = False,
        timer: Callable[[str], None] | None = None,
    ) -> None:
        check_base(base)
        check_numbers(schedule=schedule, total_steps=total_steps, rho=rho, gamma_gnr=gamma_gnr, clip=clip, seed=seed)
        self.base = base
        super().__init__(base.param_groups, base.defaults)
        self.model, self.schedule, self.total_steps, self.seed = model, schedule, total_steps, seed
        self.rho, self.gamma_gnr, self.clip, self.scaler = float(rho), float(gamma_gnr), clip, scaler
        self.rule = ascent.build(rule, rule_options)
        self.rule_options = dict(rule_options or {})
        self.local_eps = wants_local_eps(eps, self.rule)
        self.weight_decay_in_ascent = weight_decay_in_ascent
        self.t, self.pairs, self.ascents = 0, 0.0, 0
        self._p = schedule.values(total_steps)
        self._timer = timer
        self._second = SecondPass(self.rule, model, self.gamma_gnr, scaler)
        self._names = {id(p): name for name, p in model.named_parameters()}
        self._closure_checked = False
        ranks_agree(model, self.settings())

    # The groups and the state are those of the base optimizer: what a scheduler changes is what the step uses.
    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The param groups of the base optimizer."""
        return self.base.param_groups

    @param_groups.setter
    def param_groups(self, value: object) -> None: ...

    @property
    def state(self) -> Any:
        """The state of the base optimizer."""
        return self.base.state

    @state.setter
    def state(self, value: object) -> None: ...

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base optimizer."""
        if not any(param_group is group for group in self.base.param_groups):
            self.base.add_param_group(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients. `step` does so itself."""
        self.base.zero_grad(set_to_none)

    def step(  # type: ignore[override]
        self,
        closure: Closure | Sequence[Closure],
        per_sample: PerSample | Sequence[PerSample] | None = None,
    ) -> Tensor:
        """Take one iteration and return the loss of its first pass, detached.

        Args:
            closure: computes the loss of the batch and returns it; or a list of closures, one for each equal part of
                the batch, whose losses are averaged.
            per_sample: per_sample(None) returns the losses of all samples, whose mean is the closure's loss;
                per_sample(indices) those of some. Only ESAM's data part and SSAM's Fisher mask need it.
        """
        t = self._next()
        closures = as_list(closure)
        self.base.zero_grad()
        aware = self.rho > 0.0 and self.gamma_gnr > 0.0 and toss(self.seed, t, self._p[t - 1])
        if aware:
            losses = self._sharpness_aware(t, closures, None if per_sample is None else as_list(per_sample))
        else:
            losses = self._first_pass(closures)
        self._descend()
        self.t = t
        return losses[0] if len(losses) == 1 else torch.stack(losses).mean()

    def _next(self) -> int:
        if self.t >= self.total_steps:
            raise InputError(
                f"t <= total_steps must hold, but this would be step {self.t + 1} of {self.total_steps}: "
                "p(t) ends there, so give the RST the number of steps you will take"
            )
        return self.t + 1

    def _first_pass(self, closures: Sequence[Closure], *, synced: bool = True) -> list[Tensor]:
        if not self._closure_checked:
            closures = [watched(closures[0], self._all_params()), *closures[1:]]
        losses = propagate(closures, self.model, scaler=self.scaler, synced=synced)
        if not self._closure_checked:
            check_dense(p.grad for p in self._all_params())
            self._closure_checked = True
        self.pairs += 1.0
        self._mark("pass1")
        return losses

    def _sharpness_aware(
        self, t: int, closures: Sequence[Closure], per_sample: Sequence[PerSample] | None
    ) -> list[Tensor]:
        rng = RngState(self._devices())
        each: list[Tensor] = []
        first = closures
        if self.rule.needs_sample_losses():
            check_per_sample(self.rule, len(closures), per_sample)
            first = [recorded(losses, each) for losses in per_sample or ()]
        losses = self._first_pass(first, synced=not self.local_eps)
        context = self._context(t, closures, per_sample, each)
        if self.rule.second_pass_due():
            self.pairs += self._second.run(context, rng)
            self._mark("pass2")
        else:
            self._second.mix(context, context.g1, None)
        self.rule.on_step_end()
        self.ascents += 1
        return losses

    def _context(
        self, t: int, closures: Sequence[Closure], per_sample: Sequence[PerSample] | None, losses: list[Tensor]
    ) -> AscentContext:
        all_params = self._all_params()
        indices = [i for i, p in enumerate(all_params) if p.grad is not None]
        params = [all_params[i] for i in indices]
        g1 = [p.grad for p in params if p.grad is not None]
        check_dense(g1)
        return AscentContext(
            t=t,
            T=self.total_steps,
            seed=self.seed,
            rho=self.rho,
            lr=float(self.param_groups[0]["lr"]),
            params=params,
            indices=indices,
            g1=g1,
            ascent_grads=self._with_decay(params, g1) if self.weight_decay_in_ascent else g1,
            all_params=all_params,
            names=self._names,
            model=self.model,
            closures=closures,
            per_sample=per_sample,
            losses=losses,
        )

    @torch.no_grad()
    def _with_decay(self, params: list[Tensor], g1: list[Tensor]) -> list[Tensor]:
        decay = {id(p): group.get("weight_decay", 0.0) for group in self.param_groups for p in group["params"]}
        loss_scale = 1.0 if self.scaler is None else self.scaler.get_scale()
        return [g + p * (loss_scale * decay[id(p)]) for p, g in zip(params, g1, strict=True)]

    def _descend(self) -> None:
        if self.scaler is not None:
            self.scaler.unscale_(self.base)
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self._all_params(), self.clip)
        if self.scaler is None:
            self.base.step()
        else:
            self.scaler.step(self.base)
            self.scaler.update()
        self._mark("step")

    def _mark(self, phase: str) -> None:
        if self._timer is not None:
            self._timer(phase)

    def _all_params(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def _devices(self) -> set[torch.device]:
        return {p.device for p in self._all_params()}

    def settings(self) -> dict[str, Any]:
        """Return what decides X_t and the mix, as plain data."""
        return {
            "schedule": self.schedule.to_dict(),
            "total_steps": self.total_steps,
            "rho": self.rho,
            "gamma_gnr": self.gamma_gnr,
            "rule": self.rule.name,
            "rule_options": self.rule_options,
            "seed": self.seed,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return all that a resumed run needs: the base optimizer's state, the rule's, the scaler's, the counters."""
        own = {
            "settings": self.settings(),
            "t": self.t,
            "pairs": self.pairs,
            "ascents": self.ascents,
            "rule": self.rule.state_dict(),
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
        }
        return {**self.base.state_dict(), "rst": own}

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> None:
        """Continue from `state_dict`. With strict=False the settings may differ from those it was saved with."""
        if "rst" not in state_dict:
            raise InputError("the state must be of an RST, but it has no 'rst': load a base optimizer's into opt.base")
        own = state_dict["rst"]
        if strict:
            check_settings(own["settings"], self.settings())
        self.base.load_state_dict({name: value for name, value in state_dict.items() if name != "rst"})
        self.t, self.pairs, self.ascents = own["t"], own["pairs"], own["ascents"]
        self.rule.load_state_dict(own["rule"])
        if self.scaler is not None and own["scaler"] is not None:
            self.scaler.load_state_dict(own["scaler"])


def expected_extra_propagation(
    schedule: Schedule, T: int, rule: str = "sam", rule_options: Mapping[str, Any] | None = None
) -> float:
    """Return the expected extra pairs of a step: the exact mean of p over 1 … T times those of an aware iteration.

    >>> from rst_tune import schedules
    >>> expected_extra_propagation(schedules.constant(0.5), 100)
    0.5
    """
    return schedule.extra_propagation(T) * ascent.build(rule, rule_options).expected_pairs
