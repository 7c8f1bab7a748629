"""Training functions that are searched, killed and resumed: a regression, a text classifier, a Lightning module."""

import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

STEPS, SECONDS = 8, 0.05
WORDS = 24


def _curve(n, seed):
    x = 2 * torch.rand(n, 1, generator=torch.Generator().manual_seed(seed)) - 1
    return x, (4 * x).sin() + 0.2 * torch.randn(n, 1, generator=torch.Generator().manual_seed(seed + 1))


def _rmse(model, x, y):
    with torch.no_grad():
        return float(mse_loss(model(x), y).sqrt())


def regression(trial):
    x, y = _curve(64, seed=1)
    model = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 1))
    opt = trial.optimizer(torch.optim.AdamW(model.parameters(), lr=1e-2), model, steps_per_epoch=STEPS)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, trial.total_epochs)
    for _ in trial.epochs(schedule=schedule):
        for part in torch.randperm(len(x)).chunk(STEPS):
            opt.step(lambda part=part: mse_loss(model(x[part]), y[part]))
        schedule.step()
        time.sleep(SECONDS)
        trial.report(_rmse(model, *_curve(64, seed=3)))
    return _rmse(model, *_curve(64, seed=5))


def _text(n, seed):
    """Sentences of random words; those with more of the first words than of the last ones are of class 1."""
    words = torch.randint(WORDS, (n, 8), generator=torch.Generator().manual_seed(seed))
    return words, ((words < WORDS // 2).sum(1) > 4).long()


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.place = nn.Embedding(WORDS, 16), nn.Parameter(torch.zeros(8, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 1), nn.Linear(16, 2)

    def forward(self, words):
        return self.head(self.encoder(self.embedding(words) + self.place).mean(1))


def _accuracy(model, words, classes):
    model.eval()
    with torch.no_grad():
        right = (model(words).argmax(1) == classes).float().mean()
    model.train()
    return float(right)


def text(trial):
    words, classes = _text(128, seed=1)
    model = Transformer()
    opt = trial.optimizer(torch.optim.AdamW(model.parameters(), lr=3e-3), model, steps_per_epoch=STEPS, clip=1.0)
    for _ in trial.epochs():
        for part in torch.randperm(len(words)).chunk(STEPS):
            opt.step(lambda part=part: cross_entropy(model(words[part]), classes[part]))
        time.sleep(SECONDS)
        trial.report(accuracy=_accuracy(model, *_text(256, seed=3)))
    return _accuracy(model, *_text(256, seed=5))


def lightning(trial):
    import lightning.pytorch as pl
    from torch.utils.data import DataLoader, TensorDataset

    from rst_tune.integrations.lightning import LightningRST, TrialCallback

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(1, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 1))

        def training_step(self, batch, _):
            return mse_loss(self.net(batch[0]), batch[1])

        def validation_step(self, batch, _):
            self.log("mse", mse_loss(self.net(batch[0]), batch[1]))

        def configure_optimizers(self):
            base = torch.optim.AdamW(self.parameters(), lr=1e-2)
            opt = trial.optimizer(base, self, steps_per_epoch=STEPS, optimizer_class=LightningRST)
            return [opt], [torch.optim.lr_scheduler.CosineAnnealingLR(opt, trial.total_epochs)]

        def on_train_epoch_end(self):
            time.sleep(SECONDS)

    module, callback = Module(), TrialCallback(trial, monitor="mse")
    trainer = pl.Trainer(
        max_epochs=trial.total_epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[callback],
    )
    training = DataLoader(TensorDataset(*_curve(64, seed=1)), batch_size=64 // STEPS, shuffle=True)
    callback.fit(trainer, module, training, DataLoader(TensorDataset(*_curve(64, seed=3)), batch_size=64))
    return _rmse(module.net.eval(), *_curve(64, seed=5)) ** 2
