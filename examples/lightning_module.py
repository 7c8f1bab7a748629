"""RST in Lightning, automatic and manual: `python examples/lightning_module.py [epochs]`; needs rst_tune[lightning]."""

import sys

import lightning.pytorch as pl
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from rst_tune import schedules
from rst_tune.integrations.lightning import LightningRST


class Classifier(pl.LightningModule):
    """Automatic optimization: nothing but `configure_optimizers` changes."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 2))

    def training_step(self, batch, batch_idx):
        loss = cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        base = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return LightningRST(base, self, schedule=schedules.constant(0.5), rho=0.05)


class ManualClassifier(Classifier):
    """Manual optimization: step with a function of the loss, without zero_grad and backward."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        self.optimizers().step(lambda: cross_entropy(self.net(batch[0]), batch[1]))


def main(epochs=5):
    x = torch.randn(512, 20, generator=torch.Generator().manual_seed(0))
    data = DataLoader(TensorDataset(x, (x[:, :3].sum(1) > 0).long()), batch_size=32, shuffle=True)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    options = {"accumulate_grad_batches": 2, "gradient_clip_val": 1.0, "precision": "bf16-mixed"}
    for module, more in ((Classifier(), options), (ManualClassifier(), {})):
        trainer = pl.Trainer(max_epochs=epochs, **quiet, **more)
        trainer.fit(module, data)
        opt = trainer.optimizers[0]
        print(f"{type(module).__name__}: {trainer.global_step} steps, {opt.pairs:.0f} forward-backward pairs")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
