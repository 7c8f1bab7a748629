"""Hugging Face Trainer: tiny models built from their configs agree with our loop; accumulation, resume, refusals."""

import pytest
import torch

from rst_tune import RST, schedules
from rst_tune.errors import InputError

hf = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'rst_tune[transformers]'")
pytest.importorskip("accelerate", reason="accelerate is not installed: pip install 'rst_tune[transformers]'")
from rst_tune.integrations.transformers import RSTTrainer, RSTTrainerMixin  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
UPDATES, SIZE, LENGTH = 8, 4, 6
RST_SETTINGS = {"schedule": schedules.constant(0.6), "rho": 0.1, "seed": 1}


def classifier():
    """A model whose loss is a mean, and which has dropout."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = hf.BertForSequenceClassification(hf.BertConfig(vocab_size=20, max_position_embeddings=8, **sizes))
    model.accepts_loss_kwargs = False  # otherwise the Trainer sums the losses of micro-batches, with any optimizer
    return model


def language_model():
    """A model that normalizes its loss by the tokens of all micro-batches."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=20, max_position_embeddings=8, **sizes))


def examples(language, parts=1):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(2, 20, (UPDATES * SIZE * parts, LENGTH), generator=generator)
    labels = rows if language else (rows[:, 0] > 10).long()
    rows, labels = rows.clone(), labels.clone()
    if language:
        labels[::3, 3:] = -100  # micro-batches with different numbers of tokens
    return [{"input_ids": x, "labels": y} for x, y in zip(rows, labels, strict=True)]


class InOrder(RSTTrainer):
    def _get_train_sampler(self, train_dataset=None):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def trainer_of(model, folder, parts=1, rst=None, kind=InOrder, optimizers=(None, None), **args):
    options = {"num_train_epochs": 1, "learning_rate": 0.01, "max_grad_norm": 0.5, "logging_steps": 1, "use_cpu": True}
    options |= {"per_device_train_batch_size": SIZE, "gradient_accumulation_steps": parts, "report_to": "none"}
    options |= {"save_strategy": "no", "disable_tqdm": True, "seed": 5, "weight_decay": 0.01, **args}
    language = type(model).__name__.startswith("Llama")
    return kind(
        model,
        hf.TrainingArguments(str(folder), **options),
        train_dataset=examples(language, parts),
        rst={**RST_SETTINGS, **(rst or {})},
        optimizers=optimizers,
    )


def own_loop(model, parts=1, **settings):
    """Train with plain RST on the whole batch of an update; return the optimizer and the losses."""
    language = type(model).__name__.startswith("Llama")
    base = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.01)
    opt = RST(base, model, total_steps=UPDATES, clip=0.5, **{**RST_SETTINGS, **settings})
    scheduler = hf.get_scheduler("linear", opt, num_warmup_steps=0, num_training_steps=UPDATES)
    rows, losses = examples(language, parts), []
    model.train()
    for t in range(UPDATES):
        of_update = rows[t * SIZE * parts : (t + 1) * SIZE * parts]
        batch = {name: torch.stack([row[name] for row in of_update]) for name in of_update[0]}
        losses.append(float(opt.step(lambda batch=batch: model(**batch).loss)))
        scheduler.step()
    return opt, losses


def without_dropout(model):
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def grouped(model):
    """Put all parameters into one group, as our loop does."""
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.01), None


CASES = {
    "sam": {},
    "gamma": {"gamma_gnr": 2.0},
    "gsam": {"rule": "gsam"},
    "gradient-norm": {"policy": "gradient-norm"},
    "s2sam": {"rule": "s2sam"},
}


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(
    ("build", "case"),
    [(classifier, "gamma"), *((language_model, case) for case in CASES)],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_the_trainer_is_our_own_loop(build, parts, case, tmp_path):
    theirs, ours = without_dropout(build()), without_dropout(build())
    trainer = trainer_of(theirs, tmp_path, parts, CASES[case], optimizers=grouped(theirs))
    trainer.train()
    opt, losses = own_loop(ours, parts, **CASES[case])
    assert opt.ascents > 0 or case == "gradient-norm"
    assert (trainer.rst.t, trainer.rst.pairs, trainer.rst.ascents) == (UPDATES, opt.pairs, opt.ascents)
    assert trainer.state.global_step == UPDATES
    assert trainer.rst.param_groups[0]["lr"] == opt.param_groups[0]["lr"]
    logged = [row for row in trainer.state.log_history if "loss" in row]
    assert [float(row["loss"]) for row in logged] == pytest.approx(losses, abs=2e-4)
    assert max(float(row["grad_norm"]) for row in logged) > 0.5, "nothing was clipped"
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-3, atol=2e-5)


def test_rho_zero_is_the_plain_trainer(tmp_path):
    class Plain(hf.Trainer):
        def __init__(self, *args, rst, **kwargs):
            super().__init__(*args, **kwargs)

        _get_train_sampler = InOrder._get_train_sampler

    models = [language_model(), language_model()]
    for model, kind in zip(models, (InOrder, Plain), strict=True):
        trainer_of(model, tmp_path, 2, {"rho": 0.0}, kind=kind).train()
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(p, q)


def test_dropout_is_the_same_in_both_passes(tmp_path):
    model, masks = classifier(), []
    model.dropout.register_forward_hook(lambda _module, args, out: masks.append((out == 0).clone()))
    trainer = trainer_of(model, tmp_path, 2, {"schedule": schedules.constant(1.0)})
    trainer.train()
    assert len(masks) == 4 * UPDATES
    for start in range(0, len(masks), 4):
        first_a, first_b, second_a, second_b = masks[start : start + 4]
        assert torch.equal(first_a, second_a)
        assert torch.equal(first_b, second_b)


@pytest.mark.parametrize("rule", ["sam", "vasso"])
def test_a_checkpoint_resumes_exactly(rule, tmp_path):
    whole, again = classifier(), classifier()
    first = trainer_of(whole, tmp_path, 2, {"rule": rule}, save_strategy="steps", save_steps=3)
    first.train()
    resumed = trainer_of(again, tmp_path, 2, {"rule": rule})
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert (resumed.rst.t, resumed.rst.pairs) == (UPDATES, first.rst.pairs)
    for p, q in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(p, q)


def test_bf16_a_shorter_last_update_and_a_second_training(tmp_path):
    model = classifier()
    trainer = trainer_of(model, tmp_path, 3, bf16=True, kind=RSTTrainer)
    trainer.train_dataset = trainer.train_dataset[: 7 * SIZE]  # 7 micro-batches, 3 updates
    trainer.train()
    first = trainer.rst
    assert (first.t, first.total_steps) == (3, 3)
    trainer.train()
    assert trainer.rst is not first
    assert trainer.rst.base is first.base
    assert trainer.rst.t == 3


def test_the_mixin_adds_rst_to_another_trainer(tmp_path):
    class Custom(RSTTrainerMixin, hf.Seq2SeqTrainer):
        pass

    args = hf.Seq2SeqTrainingArguments(
        str(tmp_path), max_steps=2, use_cpu=True, report_to="none", save_strategy="no", disable_tqdm=True
    )
    trainer = Custom(classifier(), args, train_dataset=examples(language=False), rst=RST_SETTINGS)
    trainer.train()
    assert (trainer.rst.t, trainer.rst.total_steps) == (2, 2)


def test_what_cannot_work_is_refused(tmp_path):
    model = classifier()
    base, _ = grouped(model)
    opt = RST(base, model, total_steps=UPDATES, **RST_SETTINGS)
    with pytest.raises(InputError, match=r"pass its settings as rst=\{"):
        trainer_of(model, tmp_path, optimizers=(opt, None))
    with pytest.raises(InputError, match="before train"):
        trainer_of(model, tmp_path).rst.step()
    with pytest.raises(InputError, match="losses of single samples"):
        trainer_of(model, tmp_path, rst={"rule": "esam", "schedule": schedules.constant(1.0)}).train()


def test_fp16_is_refused(tmp_path):
    with pytest.raises(InputError, match="fp16: use bf16"):
        trainer_of(classifier(), tmp_path, fp16=True)


def test_rst_in_a_plain_trainer_names_the_remedy(tmp_path):
    model = classifier()
    opt = RST(grouped(model)[0], model, total_steps=UPDATES, **RST_SETTINGS)
    args = hf.TrainingArguments(str(tmp_path), max_steps=2, use_cpu=True, report_to="none", disable_tqdm=True)
    with pytest.raises(InputError, match="step needs a closure"):
        hf.Trainer(model, args, train_dataset=examples(language=False), optimizers=(opt, None)).train()
