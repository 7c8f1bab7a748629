"""RST in the Hugging Face Trainer: `python examples/huggingface_trainer.py [epochs]`; needs rst_tune[transformers]."""

import sys
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments

from rst_tune import schedules
from rst_tune.integrations.transformers import RSTTrainer


def sequences(n, seed):
    """Return n sequences of tokens in which each token follows from the one before."""
    generator = torch.Generator().manual_seed(seed)
    tokens = [torch.randint(0, 31, (n,), generator=generator)]
    for _ in range(15):
        tokens.append((3 * tokens[-1] + 1) % 31)
    return [{"input_ids": row, "labels": row} for row in torch.stack(tokens, dim=1)]


def main(epochs=10):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=31, max_position_embeddings=16, **sizes))
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            num_train_epochs=epochs,
            learning_rate=3e-3,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=2,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
        )
        trainer = RSTTrainer(
            model,
            args,
            train_dataset=sequences(256, seed=1),
            eval_dataset=sequences(64, seed=2),
            rst={"schedule": schedules.piecewise(a=0.0, b=0.5), "rho": 0.05},
        )
        trainer.train()
        loss = trainer.evaluate()["eval_loss"]
    print(f"evaluation loss {float(loss):.3f}, {trainer.rst.t} steps, {trainer.rst.pairs:.0f} forward-backward pairs")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
