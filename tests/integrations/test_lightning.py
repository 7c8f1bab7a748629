"""Lightning: automatic and manual optimization agree with our own loop; checkpoints, schedulers, refusals."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from rst_tune import RST, schedules
from rst_tune.errors import InputError

pl = pytest.importorskip("lightning.pytorch", reason="Lightning is not installed: pip install 'rst_tune[lightning]'")
from rst_tune.integrations.lightning import LightningRST, TrialCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
EPOCHS, BATCHES, SIZE = 2, 6, 8
SETTINGS = {"schedule": schedules.constant(0.6), "rho": 0.1, "seed": 1}
TOTAL = EPOCHS * BATCHES


def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(BATCHES * SIZE, 6, generator=generator)
    return DataLoader(TensorDataset(x, torch.randint(0, 3, (BATCHES * SIZE,), generator=generator)), batch_size=SIZE)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))


class Net(pl.LightningModule):
    def __init__(self, manual=False, optimizer=LightningRST, **settings):
        super().__init__()
        self.net, self.settings, self.optimizer = network(), {**SETTINGS, **settings}, optimizer
        self.automatic_optimization = not manual
        self.losses, self.rates, self.norms = [], [], []

    def training_step(self, batch, batch_idx):
        if not self.automatic_optimization:
            return self.optimizers().step(lambda: cross_entropy(self.net(batch[0]), batch[1]))
        loss = cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def on_before_optimizer_step(self, optimizer):
        if self.automatic_optimization:
            self.norms.append(float(torch.cat([p.grad.flatten() for p in self.parameters()]).norm()))

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.losses.append(float(outputs["loss"]) if self.automatic_optimization else None)
        self.rates.append(self.opt.param_groups[0]["lr"])

    def configure_optimizers(self):
        base = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        self.opt = self.optimizer(base, self, **self.settings)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, T_max=self.opt.total_steps)
        return {"optimizer": self.opt, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def fit(module, checkpoint=None, **options):
    quiet = dict.fromkeys(("enable_progress_bar", "enable_model_summary", "logger"), False)
    options = {"max_epochs": EPOCHS, "accelerator": "cpu", "enable_checkpointing": False, **quiet, **options}
    trainer = pl.Trainer(**options)
    torch.manual_seed(5)
    trainer.fit(module, data(), ckpt_path=checkpoint)
    return trainer


def own_loop(parts=1, bf16=False, **settings):
    """Return the network, the optimizer and the losses of first passes of a plain loop with RST."""
    net, losses = network(), []
    base = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    opt = RST(base, net, total_steps=TOTAL // parts, **{**SETTINGS, **settings})
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=TOTAL // parts)

    def closure_of(x, y):
        def closure():
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                return cross_entropy(net(x), y)

        return closure

    torch.manual_seed(5)
    for _ in range(EPOCHS):
        closures = [closure_of(x, y) for x, y in data()]
        for start in range(0, BATCHES, parts):
            losses.append(float(opt.step(closures[start : start + parts])))
            scheduler.step()
    return net, opt, losses


def assert_same(module, net, opt, rtol=1e-4, atol=1e-6):
    assert (module.opt.t, module.opt.pairs, module.opt.ascents) == (opt.t, opt.pairs, opt.ascents)
    assert opt.ascents > 0
    for (name, ours), theirs in zip(net.state_dict().items(), module.net.state_dict().values(), strict=True):
        torch.testing.assert_close(theirs, ours, rtol=rtol, atol=atol, msg=lambda m, name=name: f"{name}: {m}")


CASES = {
    "sam": {},
    "gamma": {"gamma_gnr": 2.0},
    "gsam": {"rule": "gsam", "gamma_gnr": 1.5},
    "looksam": {"rule": "looksam", "rule_options": {"k": 2}},
    "gradient-norm": {"policy": "gradient-norm"},
    "cap": {"gamma_gnr": 3.0, "cap": 1.05},
    "s2sam": {"rule": "s2sam"},
    "msam": {"rule": "msam"},
}


@pytest.mark.parametrize("case", CASES)
def test_automatic_optimization_is_our_own_loop(case):
    module = Net(**CASES[case])
    trainer = fit(module)
    net, opt, losses = own_loop(**CASES[case])
    assert_same(module, net, opt)
    assert trainer.global_step == TOTAL == module.opt.total_steps
    assert module.losses == pytest.approx(losses, rel=1e-4)
    assert len(module.norms) == TOTAL
    assert module.rates[-1] == pytest.approx(opt.param_groups[0]["lr"])


@pytest.mark.parametrize("case", ["gamma", "gsam", "looksam"])
def test_accumulation_and_clipping_are_our_own_loop_with_parts_and_clip(case):
    module = Net(**CASES[case])
    trainer = fit(module, accumulate_grad_batches=2, gradient_clip_val=0.5)
    net, opt, _ = own_loop(parts=2, clip=0.5, **CASES[case])
    assert max(module.norms) > 0.5, "nothing was clipped"
    assert trainer.global_step == TOTAL // 2 == module.opt.total_steps
    assert_same(module, net, opt)


def test_bf16_is_our_own_loop_under_autocast():
    module = Net(gamma_gnr=2.0)
    fit(module, precision="bf16-mixed", gradient_clip_val=0.5)
    net, opt, _ = own_loop(bf16=True, clip=0.5, gamma_gnr=2.0)
    # The two add gradients in another order, and every forward pass rounds to 8 bits.
    assert_same(module, net, opt, rtol=0.02, atol=0.01)


def test_manual_optimization_is_our_own_loop():
    module = Net(manual=True, optimizer=LightningRST, gamma_gnr=2.0)

    def step_scheduler(outputs, batch, batch_idx):
        module.lr_schedulers().step()

    module.on_train_batch_end = step_scheduler
    trainer = fit(module)
    net, opt, _ = own_loop(gamma_gnr=2.0)
    assert_same(module, net, opt, rtol=0, atol=0)
    assert trainer.global_step == TOTAL


def test_only_the_first_pass_is_logged():
    module = Net()
    trainer = fit(module, accumulate_grad_batches=2)
    assert module.opt.ascents > 0
    last_epoch = module.losses[-BATCHES:]
    # Lightning reports the loss of a part divided by the number of parts.
    assert float(trainer.callback_metrics["loss_epoch"]) == pytest.approx(2 * sum(last_epoch) / BATCHES, rel=1e-5)
    assert "log" not in vars(module)


class Generators(pl.Callback):
    """Records the state of the random generator before each step, or restores it: Lightning does not save it."""

    def __init__(self, states=None):
        self.restored, self.states = states is not None, states or {}

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if self.restored:
            torch.set_rng_state(self.states[trainer.global_step])
        self.states[trainer.global_step] = torch.get_rng_state()


@pytest.mark.parametrize("rule", ["sam", "vasso", "msam"])
def test_a_checkpoint_resumes_exactly(rule, tmp_path):
    checkpoints = pl.callbacks.ModelCheckpoint(dirpath=tmp_path, every_n_train_steps=BATCHES, save_top_k=-1)
    whole, resumed, generators = Net(rule=rule), Net(rule=rule), Generators()
    fit(whole, enable_checkpointing=True, callbacks=[generators, checkpoints])
    (checkpoint,) = tmp_path.glob(f"*step={BATCHES}.ckpt")
    trainer = fit(resumed, checkpoint=str(checkpoint), callbacks=[Generators(generators.states)])
    assert trainer.global_step == TOTAL
    assert len(resumed.losses) == TOTAL - BATCHES
    assert (resumed.opt.t, resumed.opt.pairs) == (whole.opt.t, whole.opt.pairs)
    assert resumed.rates == whole.rates[BATCHES:]
    for ours, theirs in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True):
        torch.testing.assert_close(theirs, ours, rtol=0, atol=0)


def test_a_trainer_can_fit_again():
    module = Net()
    trainer = fit(module)
    again = Net()
    torch.manual_seed(5)
    trainer.fit_loop.max_epochs = 2 * EPOCHS
    trainer.fit(again, data())
    names = [type(each).__name__ for each in trainer.callbacks]
    assert names.count("_SecondPass") == 1


def test_fp16_is_refused_with_the_remedy():
    plugin = pl.plugins.MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu"))
    with pytest.raises(InputError, match="use precision='bf16-mixed'"):
        fit(Net(), plugins=[plugin])


def test_a_plain_rst_with_accumulation_is_refused_with_the_remedy():
    module = Net(optimizer=RST, total_steps=TOTAL)
    with pytest.raises(InputError, match="LightningRST"):
        fit(module, accumulate_grad_batches=2)


def test_a_plain_rst_works_without_accumulation_and_clipping():
    module = Net(optimizer=RST, total_steps=TOTAL, gamma_gnr=2.0)
    fit(module)
    net, opt, _ = own_loop(gamma_gnr=2.0)
    assert_same(module, net, opt)


def test_a_rule_that_passes_ahead_with_accumulation_is_refused():
    with pytest.raises(InputError, match="accumulate_grad_batches = 1 must hold for rule 'msam'"):
        fit(Net(rule="msam"), accumulate_grad_batches=2)


def test_training_without_an_end_is_refused():
    with pytest.raises(InputError, match="set max_epochs or max_steps"):
        fit(Net(), max_epochs=-1)


def test_a_rule_with_losses_of_single_samples_is_refused():
    with pytest.raises(InputError, match="losses of single samples"):
        fit(Net(rule="esam"))


# --- a Trainer as the training of a search ----------------------------------------------------------------------


def trial_run(**changes):
    from rst_tune.records import Metric
    from rst_tune.training.function_run import FunctionRun, RunSpec
    from rst_tune.training.task import Method
    from tests.faults.fault_functions import lightning as function

    method = Method(schedule={"family": "constant", "p": 0.5}, gamma_gnr=2.0)
    given = {"name": "own", "function": function, "method": method, "metric": Metric(name="MSE", unit="")}
    return FunctionRun(RunSpec(**{**given, "rho": 0.05, "seed": 3, "epochs": 4, **changes}))


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_trainer_in_a_search_resumes_to_the_last_bit(tmp_path, at):
    whole = trial_run()
    while not whole.finished:
        whole.epoch()
    first = trial_run()
    for _ in range(at):
        first.epoch()
    first.save(tmp_path / "run.pt")
    first.close()
    second = trial_run()
    second.restore(tmp_path / "run.pt")
    while not second.finished:
        second.epoch()
    assert second.history["MSE"] == whole.history["MSE"]
    assert second.pairs == whole.pairs
    for mine, theirs in zip(second.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    second.save(tmp_path / "model.pt")
    second.close()
    tested = trial_run()
    tested.restore(tmp_path / "model.pt")
    assert tested.test() == whole.test()


def test_a_metric_that_is_not_logged_is_named():

    with pytest.raises(InputError, match="'accuracy' is not among"):
        TrialCallback(None, "accuracy").on_train_epoch_end(SimpleNamespace(callback_metrics={"loss": 1.0}), None)
