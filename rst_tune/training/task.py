"""Task (data, model, recipe) and Method (schedule, ascent rule): frozen, validated configuration."""

import os
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from rst_tune.errors import InputError
from rst_tune.method import ascent, policies, schedules
from rst_tune.method.checks import check_method
from rst_tune.records import PERCENT_ERROR, Metric
from rst_tune.training.models import known_model
from rst_tune.training.recipes import RECIPES

Augmentation = Literal["flip", "crop", "resized-crop", "cutout", "mixup"]
"""flip: mirror each image left to right with probability 1/2. crop: pad each side by 4 black pixels, crop back at a
random position. resized-crop: a random area and aspect ratio, resized (image folders only). cutout: set one random
square to the mean. mixup: blend each image and its label with another image of the batch.
"""

Fraction = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Frozen(BaseModel):
    """Base of all configuration: immutable, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DataSpec(Frozen):
    """Source of the images and how they are split. The defaults add no label noise and use all images."""

    name: str = "digits"
    root: str | None = None
    """Directory of a torchvision set or image folder, or the .npz file."""
    validation: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.2
    """Held out of the training set, stratified: a fraction below 1, or a number of images."""
    split_seed: Annotated[int, Field(ge=0)] = 0
    label_noise: Fraction = 0.0
    """Fraction of the training labels replaced by another class. Validation and test labels are not changed."""
    noise_seed: Annotated[int, Field(ge=0)] = 0
    train_size: Annotated[int, Field(ge=1)] | None = None
    """Number of training images, stratified; None: all."""
    augment: tuple[Augmentation, ...] | None = None
    """None: the augmentation of the recipe."""
    image_size: Annotated[int, Field(ge=1)] = 224
    """Side in pixels of images read from files."""
    workers: Annotated[int, Field(ge=0)] = 2
    """Number of processes that read files; not used for data in memory."""

    @field_validator("root")
    @classmethod
    def _local_path(cls, root: str | None) -> str | None:
        if root is not None and (not root.strip() or "://" in root):
            raise InputError(f"`root` must be a path of the local file system, got {root!r}: copy or mount the data")
        return root

    @field_validator("validation")
    @classmethod
    def _whole_above_one(cls, value: float) -> float:
        if value >= 1 and value != int(value):
            raise InputError(f"`validation` must be a fraction below 1 or a whole number of images, got {value}")
        return value

    def resolved(self, base_dir: Path) -> Self:
        """Return a copy whose `root` is absolute: `~` is expanded, a relative path starts at `base_dir`.

        >>> DataSpec(name="npz", root="sets/own.npz").resolved(Path("/data")).root
        '/data/sets/own.npz'
        """
        if self.root is None:
            return self
        return self.model_copy(update={"root": os.path.abspath(base_dir / Path(os.path.expanduser(self.root)))})


class ModelSpec(Frozen):
    """A registered model, or the user's own `package.module:factory`."""

    name: str = "cnn-tiny"
    options: dict[str, Any] = {}

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        return known_model(name)


class Recipe(Frozen):
    """Hyperparameters of one training. `base` names the recipe that supplies the defaults."""

    base: str | None = None
    epochs: Annotated[int, Field(ge=1)]
    batch_size: Annotated[int, Field(ge=1)]
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: Positive
    momentum: Fraction = 0.9
    weight_decay: NonNegative = 0.0
    decoupled_weight_decay: bool = False
    """Adam only: shrink the weights directly instead of through the gradient (AdamW always does)."""
    warmup_epochs: NonNegative = 0.0
    """Linear warm-up before the cosine; scaled in proportion when a run has fewer epochs than the recipe."""
    label_smoothing: Fraction = 0.0
    rho: NonNegative
    augment: tuple[Augmentation, ...] = ()
    mixup_alpha: Positive = 0.2
    cutout_size: Annotated[int, Field(ge=1)] = 16
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto: bf16 on CUDA, fp32 elsewhere."""
    channels_last: bool = False
    compile: bool | str = False
    """True, or the name of a torch.compile backend."""
    max_grad_norm: Positive | None = None
    """The gradient passed to the base optimizer is clipped to this norm; None: no clipping."""
    eps: Literal["local", "global"] | None = None
    """With several processes: one ascent per rank, or one for all; None: local where the rule allows it."""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_base(cls, given: Any) -> Any:
        if isinstance(given, str):
            given = {"base": given}
        if isinstance(given, dict) and given.get("base") is not None:
            return {**RECIPES[given["base"]], **given}
        return given

    @model_validator(mode="after")
    def _warmup_fits(self) -> Self:
        if self.warmup_epochs >= self.epochs:
            raise InputError(
                f"`warmup_epochs < epochs` must hold, got warmup_epochs={self.warmup_epochs}, epochs={self.epochs}: "
                "increase `epochs` or reduce `warmup_epochs`"
            )
        return self


EMBEDDED_DATA = DataSpec(name="digits", validation=397, train_size=1000, label_noise=0.2)


class Task(Frozen):
    """Data, model and recipe of one training. `Task()` is the embedded default: noisy digits, a tiny CNN.

    >>> Task().recipe.epochs, Task.model_validate({"recipe": {"base": "cifar-cnn", "epochs": 9}}).recipe.lr
    (20, 0.1)
    """

    PREFIX: ClassVar[str] = "task.recipe"
    """Where epochs and rho stand in an experiment."""
    data: DataSpec = EMBEDDED_DATA
    model: ModelSpec = ModelSpec()
    recipe: Recipe = Field(default_factory=lambda: Recipe.model_validate("digits"))

    @property
    def epochs(self) -> int:
        """Length of one plain training."""
        return self.recipe.epochs

    @property
    def rho(self) -> float:
        """The radius of SAM."""
        return self.recipe.rho

    @property
    def batch_size(self) -> int:
        """Images per step, of all workers together."""
        return self.recipe.batch_size

    @property
    def metric(self) -> Metric:
        """What trainings are judged by."""
        return PERCENT_ERROR

    @property
    def augment(self) -> tuple[Augmentation, ...]:
        """Augmentations of the data, or else of the recipe."""
        return self.recipe.augment if self.data.augment is None else self.data.augment


class Method(Frozen):
    """A schedule, an ascent rule and the mixing coefficient.

    >>> Method(schedule={"family": "constant", "p": 0.5}, gamma_gnr=2).rule
    'sam'
    """

    schedule: dict[str, Any]
    gamma_gnr: NonNegative = 1.0
    """In units of rho: SAM is 1."""
    rule: str = "sam"
    rule_options: dict[str, Any] = {}
    policy: str = "coin"
    """What decides X_t given p(t)."""
    policy_options: dict[str, Any] = {}
    cap: Positive | None = None
    """The largest norm of the mixed gradient as a multiple of ‖g1‖; None: no limit."""
    rho: NonNegative | None = None
    """None: the rho of the recipe."""

    @model_validator(mode="after")
    def _known_schedule_and_rule(self) -> Self:
        schedules.from_dict(self.schedule)
        rule, policy = ascent.build(self.rule, self.rule_options), policies.build(self.policy, self.policy_options)
        check_method(rule, policy, gamma_gnr=self.gamma_gnr, cap=self.cap)
        return self
