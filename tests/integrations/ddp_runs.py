"""The script of two ranks of Lightning and of the Hugging Face Trainer; `test_ddp.py` compares the results."""

import os
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from rst_tune import schedules

STEPS, SIZE = 6, 8
SETTINGS = {"schedule": schedules.constant(0.7), "rho": 0.1, "seed": 1}
CASES = {"gamma": {"gamma_gnr": 2.0}, "gsam": {"rule": "gsam", "gamma_gnr": 1.5}}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 3)).double()


def rows(parts):
    generator = torch.Generator().manual_seed(0)
    n = STEPS * SIZE * parts
    x = torch.randn(n, 6, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, 3, (n,), generator=generator)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def result(net, opt):
    return {"weights": torch.cat([p.detach().flatten() for p in net.parameters()]), "pairs": opt.pairs, "t": opt.t}


def lightning_run(case, parts, bucket_view=False):
    import lightning.pytorch as pl
    from lightning.pytorch.strategies import DDPStrategy
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    from rst_tune.integrations.lightning import LightningRST

    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network()

        def training_step(self, batch, batch_idx):
            return cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            self.opt = LightningRST(sgd(self), self, **SETTINGS, **CASES[case])
            return self.opt

    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    trainer = pl.Trainer(
        max_epochs=1,
        use_distributed_sampler=False,
        accelerator="cpu",
        devices=2,
        strategy=DDPStrategy(process_group_backend="gloo", gradient_as_bucket_view=bucket_view),
        accumulate_grad_batches=parts,
        gradient_clip_val=0.3,
        **quiet,
    )
    module = Net()
    data = TensorDataset(*rows(parts))
    sampler = DistributedSampler(data, num_replicas=2, rank=int(os.environ["RANK"]), shuffle=False)
    trainer.fit(module, DataLoader(data, batch_size=SIZE // 2, sampler=sampler))
    return result(module.net, module.opt)


def trainer_run(case, parts, folder):
    import transformers

    from rst_tune.integrations.transformers import RSTTrainer

    class InOrder(RSTTrainer):
        def _get_train_sampler(self, train_dataset=None):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, x, labels):
            logits = self.net(x)
            return {"loss": cross_entropy(logits, labels), "logits": logits}

    args = transformers.TrainingArguments(
        str(folder),
        num_train_epochs=1,
        per_device_train_batch_size=SIZE // 2,
        gradient_accumulation_steps=parts,
        lr_scheduler_type="constant",
        max_grad_norm=0.3,
        use_cpu=True,
        ddp_backend="gloo",
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    model = Net()
    data = [{"x": x, "labels": y} for x, y in zip(*rows(parts), strict=True)]
    settings = {**SETTINGS, **CASES[case]}
    trainer = InOrder(model, args, train_dataset=data, rst=settings, optimizers=(sgd(model), None))
    trainer.train()
    return result(model.net, trainer.rst)


def main(framework, folder):
    torch.set_num_threads(1)
    results = {}
    for case in CASES:
        for parts in (1, 2):
            if framework == "lightning":
                results[case, parts] = lightning_run(case, parts, bucket_view=parts == 2)
            else:
                results[case, parts] = trainer_run(case, parts, folder)
    torch.save(results, Path(folder) / f"{framework}{torch.distributed.get_rank()}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
