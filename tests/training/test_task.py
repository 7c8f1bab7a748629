"""Tasks, recipes and methods as data."""

from typing import get_args

import pytest
from pydantic import ValidationError

from rst_tune.errors import InputError
from rst_tune.training.recipes import RECIPES
from rst_tune.training.task import Augmentation, DataSpec, Method, ModelSpec, Recipe, Task

CONSTANT = {"family": "constant", "p": 0.5}

# The three tables of the paper's appendix "Training Details", cell by cell.
TABLES = {
    "cifar-cnn": {"epochs": 200, "batch_size": 256, "optimizer": "sgd", "lr": 0.1, "weight_decay": 0.001, "rho": 0.1},
    "cifar-pyramidnet": {"weight_decay": 0.0005, "epochs": 200, "rho": 0.1},
    "cifar-vit": {
        "epochs": 1200,
        "warmup_epochs": 40,
        "batch_size": 256,
        "optimizer": "adam",
        "lr": 0.0005,
        "weight_decay": 0.03,
        "rho": 0.1,
    },
    "imagenet-cnn": {
        "epochs": 100,
        "batch_size": 512,
        "optimizer": "sgd",
        "lr": 0.2,
        "weight_decay": 0.0001,
        "rho": 0.05,
    },
}


@pytest.mark.parametrize("name", TABLES)
def test_recipes_are_the_papers_tables(name):
    recipe = Recipe.model_validate(name).model_dump()
    assert {key: recipe[key] for key in TABLES[name]} == TABLES[name]
    assert ("mixup" in recipe["augment"]) == (name == "cifar-vit")


@pytest.mark.parametrize("name", RECIPES.names())
def test_every_recipe_is_valid_and_survives_a_round_trip(name):
    task = Task.model_validate({"recipe": name})
    assert Task.model_validate(task.model_dump(mode="json")) == task
    assert Task.model_validate_json(task.model_dump_json()) == task


def test_a_single_field_is_overridden():
    changed = Recipe.model_validate({"base": "cifar-cnn", "epochs": 3, "rho": 0.5})
    assert changed == Recipe.model_validate("cifar-cnn").model_copy(update={"epochs": 3, "rho": 0.5})


def test_augmentation_of_the_data_outranks_the_recipes():
    assert Task.model_validate({"recipe": "cifar-cnn"}).augment == ("flip", "crop")
    assert Task.model_validate({"recipe": "cifar-cnn", "data": {"augment": []}}).augment == ()
    names = get_args(Augmentation)
    assert Task.model_validate({"data": {"augment": list(names)}}).augment == names


def test_the_default_task_is_the_embedded_one():
    task = Task()
    assert (task.data.name, task.data.train_size, task.data.label_noise) == ("digits", 1000, 0.2)
    assert (task.model.name, task.recipe.epochs, task.recipe.batch_size) == ("cnn-tiny", 20, 64)
    assert (task.recipe.lr, task.recipe.rho, task.recipe.momentum) == (0.1, 0.2, 0.9)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (Task, {"recipe": "cifar-cn"}, "did you mean 'cifar-cnn'"),
        (Task, {"recipe": {"base": "digits", "epochs": 0}}, "greater than or equal to 1"),
        (Task, {"recipe": {"base": "digits", "epoch": 3}}, "Extra inputs"),
        (Task, {"recipe": {"base": "digits", "lr": float("nan")}}, "finite number|greater than 0"),
        (Task, {"recipe": {"base": "cifar-vit", "epochs": 40}}, "`warmup_epochs < epochs` must hold"),
        (Task, {"recipe": {"base": "digits", "epochs": 1, "warmup_epochs": 1}}, "`warmup_epochs < epochs` must hold"),
        (Task, {"recipe": {"epochs": 3}}, "Field required"),
        (Task, {"model": {"name": "resnet81"}}, "did you mean 'resnet"),
        (ModelSpec, {"name": "torch.hub:load"}, "is a library module"),
        (ModelSpec, {"name": "module:"}, "'package.module:factory'"),
        (DataSpec, {"label_noise": 1.0}, "less than 1"),
        (DataSpec, {"validation": 12.5}, "a fraction below 1 or a whole number"),
        (DataSpec, {"validation": 0}, "greater than 0"),
        (DataSpec, {"name": "cifar10", "root": "s3://bucket/cifar"}, "must be a path of the local file system"),
        (DataSpec, {"name": "npz", "root": " "}, "must be a path of the local file system"),
        (DataSpec, {"augment": ["flop"]}, "'flip', 'crop'"),
        (Method, {"schedule": {"family": "constnt", "p": 0.5}}, "did you mean 'constant'"),
        (Method, {"schedule": {"family": "constant", "p": 1.5}}, "1.5"),
        (Method, {"schedule": CONSTANT, "rule": "sma"}, "unknown rule 'sma'"),
        (Method, {"schedule": CONSTANT, "rule": "looksam", "rule_options": {"kk": 3}}, "option of rule looksam"),
        (Method, {"schedule": CONSTANT, "gamma_gnr": -1}, "greater than or equal to 0"),
    ],
)
def test_wrong_input_is_refused_with_its_reason(kind, given, message):
    with pytest.raises((ValidationError, InputError), match=message):
        kind.model_validate(given)


def test_tasks_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        Task().recipe.epochs = 3
