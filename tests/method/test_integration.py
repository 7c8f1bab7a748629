"""Integration with torch: its closure convention, copies, distributed checkpoints, external scalers."""

import copy
import io
import pickle

import pytest
import torch
import torch.distributed.checkpoint as dcp
from small_nets import AHEAD, ALL_RULES, STEPS, batch, convnet, losses_of, mlp, rst, sgd, train, weights, with_gamma
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.nn.functional import cross_entropy

from rst_tune.errors import InputError
from rst_tune.method.policies import POLICIES

SAMPLES = ("esam", "ssam-fisher")  # rules that need per_sample, and so our own convention


def torch_closure(model, opt, t, shape=(6,), set_to_none=True, calls=None):
    x, y = batch(t, shape, dtype=next(model.parameters()).dtype)

    def closure():
        if calls is not None:
            calls.append(1)
        opt.zero_grad(set_to_none=set_to_none)
        loss = cross_entropy(model(x), y)
        loss.backward()
        return loss

    return closure


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize(("rule", "gamma_gnr"), [case for case in with_gamma(1.0, 2.0) if case[0] not in SAMPLES])
def test_a_closure_of_torchs_convention_agrees_with_ours(rule, gamma_gnr, set_to_none):
    name, options = ALL_RULES[rule]
    settings = {"p": 0.6, "rule": name, "rule_options": options, "gamma_gnr": gamma_gnr}
    ours, theirs = mlp(dtype=torch.float64), mlp(dtype=torch.float64)
    own, other, calls = rst(ours, **settings), rst(theirs, **settings), []
    for t in range(1, STEPS + 1):
        (expected,) = train(ours, own, range(t, t + 1))
        loss = other.step(torch_closure(theirs, other, t, set_to_none=set_to_none, calls=calls))
        assert torch.allclose(loss, expected)
        assert not loss.requires_grad
    assert torch.allclose(weights(ours), weights(theirs), rtol=1e-9)
    assert (other.pairs, other.ascents) == (own.pairs, own.ascents)
    assert len(calls) == other.pairs


@pytest.mark.parametrize("policy", POLICIES.names())
def test_torchs_closures_with_statistics_dropout_and_a_policy(policy):
    models = convnet(), convnet()
    opts = [rst(model, p=0.6, policy=policy, gamma_gnr=1.5, cap=2.0) for model in models]
    for t in range(1, STEPS + 1):
        torch.manual_seed(t)
        train(models[0], opts[0], range(t, t + 1), shape=(1, 6, 6))
        torch.manual_seed(t)
        opts[1].step(torch_closure(models[1], opts[1], t, shape=(1, 6, 6)))
    assert opts[0].ascents == opts[1].ascents
    for (name, ours), theirs in zip(models[0].state_dict().items(), models[1].state_dict().values(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5), name


def test_the_convention_may_change_between_steps():
    ours, theirs = mlp(dtype=torch.float64), mlp(dtype=torch.float64)
    own, mixed = rst(ours, gamma_gnr=2.0), rst(theirs, gamma_gnr=2.0)
    train(ours, own)
    for t in range(1, STEPS + 1):
        if t % 2:
            mixed.step(torch_closure(theirs, mixed, t))
        else:
            train(theirs, mixed, range(t, t + 1))
    assert torch.allclose(weights(ours), weights(theirs), rtol=1e-9)


def test_a_torch_closure_may_return_a_number_or_a_detached_loss():
    model, (x, y) = mlp(), batch(1)
    opt = rst(model)

    def closure(result):
        opt.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        return result(loss)

    expected = cross_entropy(model(x), y).detach()
    assert float(opt.step(lambda: closure(lambda loss: loss.item()))) == pytest.approx(float(expected))
    assert opt.step(lambda: closure(lambda loss: loss.detach())) < expected
    with pytest.raises(InputError, match="returned None: return the loss"):
        opt.step(lambda: closure(lambda loss: None))


def test_torchs_closures_that_cannot_work_are_refused():
    model = mlp()
    opt = rst(model)
    with pytest.raises(InputError, match="several parts must not call backward"):
        opt.step([torch_closure(model, opt, 1), torch_closure(model, opt, 2)])
    opt = rst(model, scaler=torch.amp.GradScaler("cpu"))
    with pytest.raises(InputError, match=r"with a scaler .* leave the backward pass to step"):
        opt.step(torch_closure(model, opt, 1))
    for gamma_gnr in (1.0, 2.0):
        opt = rst(model, rule="ssam", gamma_gnr=gamma_gnr)
        with pytest.raises(InputError, match="with per_sample must not call backward"):
            opt.step(torch_closure(model, opt, 1), per_sample=losses_of(model, *batch(1)))


def test_a_step_without_a_closure_names_the_remedy():
    model = mlp()
    opt, before = rst(model), weights(model)
    with pytest.raises(InputError, match=r"opt\.step\(lambda: .*scaler=scaler"):
        opt.step()
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(cross_entropy(model(batch(1)[0]), batch(1)[1])).backward()
    with pytest.raises(InputError, match=r"RST\(\.\.\., scaler=scaler\).*instead of scaler\.step\(opt\)"):
        scaler.step(opt)
    assert torch.equal(weights(model), before)
    assert opt.t == 0


def by_pickle(opt):
    return pickle.loads(pickle.dumps(opt))


def by_torch_save(opt):
    file = io.BytesIO()
    torch.save(opt, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, by_pickle, by_torch_save])
@pytest.mark.parametrize("rule", ALL_RULES)
def test_a_copy_continues_like_the_original(rule, copied):
    name, options = ALL_RULES[rule]
    model = mlp()
    opt = rst(model, p=0.7, rule=name, rule_options=options)
    scheduler = torch.optim.lr_scheduler.StepLR(opt, step_size=100)
    train(model, opt, range(1, 6))
    other = copied(opt)
    assert other.param_groups is other.base.param_groups
    assert other.model is not model
    train(model, opt, range(6, STEPS + 1))
    train(other.model, other, range(6, STEPS + 1))
    scheduler.step()
    assert torch.equal(weights(model), weights(other.model))
    assert (other.t, other.pairs, other.ascents) == (opt.t, opt.pairs, opt.ascents)


BASES = [sgd, lambda model: torch.optim.AdamW(model.parameters(), lr=1e-2)]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("base", BASES, ids=["sgd", "adamw"])
@pytest.mark.parametrize("rule", ALL_RULES)
def test_a_distributed_checkpoint_resumes_exactly(rule, base, tmp_path):
    name, options = ALL_RULES[rule]
    settings = {"p": 0.7, "rule": name, "rule_options": options}
    settings["policy"] = "coin" if rule in AHEAD else "gradient-norm"
    model, again = mlp(), mlp(seed=9)
    opt, resumed = rst(model, base(model), **settings), rst(again, base(again), **settings)
    train(model, opt, range(1, 6))
    dcp.save({"optimizer": get_optimizer_state_dict(model, opt)}, checkpoint_id=tmp_path)
    again.load_state_dict(model.state_dict())
    state = {"optimizer": get_optimizer_state_dict(again, resumed)}
    dcp.load(state, checkpoint_id=tmp_path)
    set_optimizer_state_dict(again, resumed, state["optimizer"])
    train(model, opt, range(6, STEPS + 1))
    train(again, resumed, range(6, STEPS + 1))
    assert torch.equal(weights(model), weights(again))
    assert (resumed.t, resumed.pairs, resumed.ascents) == (opt.t, opt.pairs, opt.ascents)


def test_a_new_optimizer_has_a_distributed_state_and_took_no_step():
    model = mlp()
    opt, before = rst(model, torch.optim.AdamW(model.parameters())), weights(model)
    state = get_optimizer_state_dict(model, opt)
    assert set(state["state"]) == {name for name, _ in model.named_parameters()}
    assert torch.equal(weights(model), before)
    assert (opt.t, opt.pairs) == (0, 0.0)
    train(model, opt)
    assert opt.t == STEPS


def test_a_learning_rate_of_zero_does_not_hide_a_missing_closure():
    model, (x, y) = mlp(), batch(1)
    opt = rst(model, sgd(model, lr=0.0))
    cross_entropy(model(x), y).backward()
    with pytest.raises(InputError, match="step needs a closure"):
        opt.step()


def test_a_state_of_an_older_version_is_loaded():
    model = mlp()
    opt = rst(model, p=0.5)
    train(model, opt, range(1, 4))
    state = opt.state_dict()
    own = state["param_groups"][0].pop("rst")
    older = {name: value for name, value in own["settings"].items() if name not in ("policy", "policy_options", "cap")}
    del own["policy"]
    resumed = rst(model, p=0.5)
    resumed.load_state_dict({**state, "rst": {**own, "settings": older}})
    assert (resumed.t, resumed.pairs) == (opt.t, opt.pairs)


def test_fsdp1_is_refused():
    class FullyShardedDataParallel(nn.Sequential):
        """Stands for the class of FSDP1, which needs an accelerator to be constructed."""

    with pytest.raises(InputError, match="fully_shard"):
        rst(FullyShardedDataParallel(mlp()))
