"""RST and G-RST as a torch optimizer around a base optimizer: X_t, ascent, gamma mix, base step."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rst_tune.errors import InputError
from rst_tune.method import ascent, checks, policies
from rst_tune.method.ascent.rule import AscentContext, Closure, PerSample
from rst_tune.method.memory import RngState
from rst_tune.method.passes import Passes, as_list, is_distributed, mean_over_ranks, ranks_agree
from rst_tune.method.schedules import Schedule
from rst_tune.method.second_pass import PerturbedPass
from rst_tune.method.sharding import check_sharding, shard_group
from rst_tune.method.vectors import local, norm, shorten_
from rst_tune.method.wrapper import OptimizerWrapper

ACCUMULATED = (
    "the closure must compute the gradient of the whole batch, but gradients of other parts were accumulated before "
    "step(), whose second pass cannot repeat them: call step([closure of each part]), or use "
    "rst_tune.integrations.lightning.LightningRST with Lightning"
)


class RST(OptimizerWrapper):
    """Randomized sharpness-aware training: each iteration takes a step of the base optimizer or of an ascent rule.

    g_t = g1 when X_t = 0, else g1 + gamma_gnr · (g_rule − g1), with X_t ~ Bernoulli(p(t)) (Algorithm 1 of the paper,
    and its G-RST extension); the base optimizer then steps with g_t from w. gamma_gnr = 1 is RST; p = 1 the rule
    itself; rho = 0 or gamma_gnr = 0 the base optimizer, without any second pass.

    Args:
        base: any torch optimizer. Its param_groups and state are used in place; there is no second copy.
        model: the module with the parameters of `base`; a DDP, FSDP2 or compiled one as it is.
        schedule: p(t), from `rst_tune.schedules`.
        total_steps: T. A step past T raises.
        rho: the radius of the ascent.
        gamma_gnr: the strength of the regularization in units of rho.
        rule: a name in `ascent.RULES`.
        rule_options: the options of that rule.
        policy: a name in `policies.POLICIES`, what decides X_t given p(t).
        policy_options: the options of that policy.
        cap: the largest norm of the mixed gradient as a multiple of ‖g1‖, or None. It limits a large gamma_gnr.
        seed: of the coin, whose X_t depends on (seed, t) alone.
        clip: the largest norm of the final gradient, or None.
        scaler: a GradScaler. Its scale, unscale_, step and update are called here.
        eps: under DDP "local" (each rank has its own eps, the first pass exchanges nothing) or "global". None is
            "local" unless the rule, the policy or the cap needs the gradient of all ranks.
        weight_decay_in_ascent: eps follows g1 + weight_decay · w. The base optimizer applies its own decay anyway.
        timer: called with "pass1", "pass2" and "step" at the end of that phase.

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
        policy: str = "coin",
        policy_options: Mapping[str, Any] | None = None,
        cap: float | None = None,
        seed: int = 0,
        clip: float | None = None,
        scaler: torch.amp.GradScaler | None = None,
        eps: str | None = None,
        weight_decay_in_ascent: bool = False,
        timer: Callable[[str], None] | None = None,
    ) -> None:
        checks.check_base(base)
        checks.check_numbers(
            schedule=schedule, total_steps=total_steps, rho=rho, gamma_gnr=gamma_gnr, clip=clip, seed=seed
        )
        self.rule, self.policy = ascent.build(rule, rule_options), policies.build(policy, policy_options)
        checks.check_method(
            self.rule, self.policy, gamma_gnr=gamma_gnr, cap=cap, weight_decay_in_ascent=weight_decay_in_ascent
        )
        self.rule.attach(model, base)
        super().__init__(base)
        self.model, self.schedule, self.total_steps, self.seed = model, schedule, total_steps, seed
        self.rho, self.gamma_gnr, self.clip, self.scaler = float(rho), float(gamma_gnr), clip, scaler
        self.rule_options, self.policy_options, self.cap = dict(rule_options or {}), dict(policy_options or {}), cap
        self.local_eps = checks.wants_local_eps(eps, self.rule, self.policy, cap)
        self.weight_decay_in_ascent = weight_decay_in_ascent
        self.t, self.pairs, self.ascents = 0, 0.0, 0
        self._p = schedule.values(total_steps)
        self._timer = timer
        self._passes = Passes(model, scaler)
        self._perturbed = PerturbedPass(self.rule, self._passes, self.gamma_gnr, local_eps=self.local_eps)
        self._names = _names(model)
        self._dense_checked = False
        self._due: int | None = None
        self._loss = torch.zeros(())
        check_sharding(model, self._all_params(), self.rule)
        if is_distributed(model) or shard_group(self._all_params()) is not None:
            ranks_agree(self.settings())

    def expected_extra_propagation(self, batch_size: int | None = None) -> float:
        """Return the expected extra pairs per step; `batch_size` is as in `cost.expected_extra_propagation`."""
        if self.rho == 0.0 or self.gamma_gnr == 0.0:
            return 0.0
        return self.rule.expected_pairs(self._p, batch_size) / self.total_steps

    def step(  # type: ignore[override]
        self,
        closure: Closure | Sequence[Closure] | None = None,
        per_sample: PerSample | Sequence[PerSample] | None = None,
    ) -> Tensor:
        """Take one iteration and return the loss of its first pass, detached.

        Args:
            closure: computes the loss of the batch and returns it; or a list of closures, one per equal part of the
                batch, whose losses are averaged. A closure of torch's convention (zero_grad, backward, return the
                loss) works as well; it is called a second time where a second pass is due.
            per_sample: per_sample(None) returns the losses of all samples, whose mean is the closure's loss;
                per_sample(indices) those of some. Only ESAM's data part and SSAM's Fisher mask need it.
        """
        if closure is None and self._due is None and self._initializes_state():
            self.base.step()
            return torch.zeros(())
        loss = self._loss if closure is None and self._due is not None else self.propagate(closure, per_sample)
        self._descend()
        self.t, self._due = self.t + 1, None
        return loss

    def propagate(
        self,
        closure: Closure | Sequence[Closure] | None,
        per_sample: PerSample | Sequence[PerSample] | None = None,
    ) -> Tensor:
        """Take the passes of one iteration, leave its gradient in `.grad`, and return the loss of the first pass.

        `step()` without a closure then completes the iteration. Between the two the gradient may be changed, for
        example clipped by a framework. The arguments are those of `step`.
        """
        checks.check_closure(closure)
        checks.check_accelerate()
        t = self.t + 1
        if t > self.total_steps:
            raise InputError(
                f"t <= total_steps must hold, but this would be step {t} of {self.total_steps}: "
                "p(t) ends there, so construct the RST with the number of steps of the training"
            )
        accumulated = self._cleared and any(g.any() for g in self._gradients(self._with_gradient()))
        self._cleared = False
        self.base.zero_grad()
        losses = self._propagate(t, as_list(closure), None if per_sample is None else as_list(per_sample))
        if accumulated and self._passes.closure_runs_backward and not self._cleared:
            raise InputError(ACCUMULATED)
        self._cleared, self._due = False, t
        self._loss = losses[0] if len(losses) == 1 else torch.stack(losses).mean()
        return self._loss

    def _propagate(self, t: int, closures: Sequence[Closure], per_sample: Sequence[PerSample] | None) -> list[Tensor]:
        """Leave the gradient of the step in `.grad` and return the losses of its first pass."""
        p = self._p[t - 1]
        if self.rho == 0.0 or self.gamma_gnr == 0.0:
            return self._first_pass(closures)
        if self.policy.needs_gradient:
            return self._sharpness_aware(t, closures, per_sample, p)
        aware = self.policy.decide(self.seed, t, p)
        if self.rule.passes_ahead:
            return self._pass_ahead(t, closures, aware)
        return self._sharpness_aware(t, closures, per_sample) if aware else self._first_pass(closures)

    def _pass_ahead(self, t: int, closures: Sequence[Closure], aware: bool) -> list[Tensor]:
        if aware:
            trained = [i for i, p in enumerate(self._all_params()) if p.requires_grad]
            losses = self._counted(self._perturbed.ahead(self._context(t, trained), closures))
            self.ascents += 1
        else:
            losses = self._first_pass(closures)
        indices = self._with_gradient()
        self.rule.after_pass(indices, self._gradients(indices))
        return losses

    def _first_pass(self, closures: Sequence[Closure], *, synced: bool = True) -> list[Tensor]:
        return self._counted(self._passes.first(closures, self._all_params(), synced=synced))

    def _counted(self, losses: list[Tensor]) -> list[Tensor]:
        if not self._dense_checked:
            checks.check_dense(p.grad for p in self._all_params())
            self._dense_checked = True
        self.pairs += 1.0
        self._mark("pass1")
        return losses

    def _sharpness_aware(
        self, t: int, closures: Sequence[Closure], per_sample: Sequence[PerSample] | None, p: float | None = None
    ) -> list[Tensor]:
        """Take both passes; with p the policy decides after the first whether there is a second."""
        rng = RngState(self._devices())
        each: list[Tensor] = []
        first = closures
        if self.rule.needs_sample_losses():
            checks.check_per_sample(self.rule, len(closures), per_sample)
            first = [checks.recorded(losses, each) for losses in per_sample or ()]
        losses = self._first_pass(first, synced=not self.local_eps)
        if p is not None and not self.policy.decide(self.seed, t, p, self._squared_norm()):
            return losses
        context = self._context(t, self._with_gradient())
        context.closures, context.per_sample, context.losses = closures, per_sample, each
        self._ascend(context, rng)
        return losses

    def _ascend(self, context: AscentContext, rng: RngState) -> None:
        length = None if self.cap is None else context.norm(context.g1)
        if self.rule.second_pass_due():
            self.pairs += self._perturbed.second(context, rng)
            self._mark("pass2")
        else:
            self._perturbed.mix(context, context.g1, None)
        if self.cap is not None and length is not None:
            mixed = self._gradients(self._with_gradient())
            shorten_(mixed, context.norm(mixed), self.cap * length)
        self.rule.on_step_end()
        self.ascents += 1

    def _squared_norm(self) -> float:
        """Return ‖g1‖² without the loss scale. Ranks average it, because they must decide alike."""
        all_params = self._all_params()
        length = float(norm(self._gradients(self._with_gradient()), shard_group(all_params))) / self._loss_scale()
        if not is_distributed(self.model):
            return length**2
        square = torch.tensor(length**2, device=all_params[0].device)
        mean_over_ranks([square])
        return float(square)

    @torch.no_grad()
    def _context(self, t: int, indices: list[int]) -> AscentContext:
        all_params = self._all_params()
        params, g1 = [local(all_params[i]) for i in indices], self._gradients(indices)
        return AscentContext(
            t=t,
            T=self.total_steps,
            seed=self.seed,
            rho=self.rho,
            lr=float(self.param_groups[0]["lr"]),
            params=params,
            indices=indices,
            g1=g1,
            ascent_grads=self._with_decay(indices, params, g1) if self.weight_decay_in_ascent else g1,
            all_params=all_params,
            names=self._names,
            model=self.model,
            scaler=self.scaler,
            shard_group=shard_group(all_params),
        )

    def _with_decay(self, indices: list[int], params: list[Tensor], g1: list[Tensor]) -> list[Tensor]:
        decays = [group.get("weight_decay", 0.0) for group in self.param_groups for _ in group["params"]]
        scale = self._loss_scale()
        return [g + p * (scale * decays[i]) for i, p, g in zip(indices, params, g1, strict=True)]

    def _loss_scale(self) -> float:
        return 1.0 if self.scaler is None else self.scaler.get_scale()

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

    def settings(self) -> dict[str, Any]:
        """Return the settings of X_t and of the mix, as plain data."""
        return {
            "schedule": self.schedule.to_dict(),
            "total_steps": self.total_steps,
            "rho": self.rho,
            "gamma_gnr": self.gamma_gnr,
            "rule": self.rule.name,
            "rule_options": self.rule_options,
            "policy": self.policy.name,
            "policy_options": self.policy_options,
            "cap": self.cap,
            "seed": self.seed,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._names = _names(self.model)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs: the state of base optimizer, rule, policy and scaler, and the counters."""
        own = {
            "settings": self.settings(),
            "t": self.t,
            "pairs": self.pairs,
            "ascents": self.ascents,
            "rule": self.rule.state_dict({i: p for i, p in enumerate(self._all_params()) if p.requires_grad}),
            "policy": self.policy.state_dict(),
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
        }
        state: dict[str, Any] = self.base.state_dict()
        first, *others = state["param_groups"]
        # torch.distributed.checkpoint keeps the state and the groups only, so everything else is in the first group.
        return {**state, "param_groups": [{**first, "rst": own}, *others]}

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> None:
        """Continue from `state_dict`. With strict=False the settings may differ from those it was saved with."""
        groups = [dict(group) for group in state_dict["param_groups"]]
        own = groups[0].pop("rst", None) or state_dict.get("rst")
        if own is None:
            raise InputError(
                "the state must be that of an RST, but it has no 'rst': load a base optimizer's state into opt.base"
            )
        if strict:
            checks.check_settings(own["settings"], self.settings())
        self.base.load_state_dict({"state": state_dict["state"], "param_groups": groups})
        self.t, self.pairs, self.ascents = own["t"], own["pairs"], own["ascents"]
        self.rule.load_state_dict(own["rule"])
        self.policy.load_state_dict(own.get("policy", {}))
        if self.scaler is not None and own["scaler"] is not None:
            self.scaler.load_state_dict(own["scaler"])


def _names(model: nn.Module) -> dict[int, str]:
    return {id(p): name for name, p in model.named_parameters()}
