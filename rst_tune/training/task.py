"""What is trained (Task) and how sharpness-aware it is (Method): frozen, validated, plain data."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from rst_tune.errors import InputError
from rst_tune.method import ascent, policies, schedules
from rst_tune.method.checks import check_method
from rst_tune.training.models import known_model
from rst_tune.training.recipes import RECIPES

__all__ = ["AUGMENTATIONS", "Augmentation", "DataSpec", "Method", "ModelSpec", "Recipe", "Task"]

Augmentation = Literal["flip", "crop", "resized-crop", "cutout", "mixup"]
AUGMENTATIONS: dict[str, str] = {
    "flip": "mirror each image left to right with probability 1/2",
    "crop": "pad each side by 4 black pixels, crop back at a random place",
    "resized-crop": "a random area and aspect ratio, resized (image folders only)",
    "cutout": "blank one random square",
    "mixup": "blend each image and its label with another of the batch",
}

Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Frozen(BaseModel):
    """Immutable; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DataSpec(Frozen):
    """Where the images come from and how they are split. The defaults leave the data as they are."""

    name: str = "digits"
    root: str | None = None
    """The folder of a torchvision set or image folder, or the .npz file."""
    validation: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.2
    """Held out of the training set, stratified: a share below 1, or a number of images."""
    split_seed: Annotated[int, Field(ge=0)] = 0
    label_noise: Share = 0.0
    """Share of the training labels replaced by another class. Validation and test labels stay clean."""
    noise_seed: Annotated[int, Field(ge=0)] = 0
    train_size: Annotated[int, Field(ge=1)] | None = None
    """Train on that many images of the training part, stratified; None: all."""
    augment: tuple[Augmentation, ...] | None = None
    """None: the recipe's."""
    image_size: Annotated[int, Field(ge=1)] = 224
    """Side of the images of a set that is read from files."""
    workers: Annotated[int, Field(ge=0)] = 2
    """Processes that read files; sets in memory need none."""

    @field_validator("validation")
    @classmethod
    def _whole_above_one(cls, value: float) -> float:
        if value >= 1 and value != int(value):
            raise InputError(f"`validation` is a share below 1 or a whole number of images, got {value}")
        return value


class ModelSpec(Frozen):
    """A registered model, or the user's own `package.module:factory`."""

    name: str = "cnn-tiny"
    options: dict[str, Any] = {}

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        return known_model(name)


class Recipe(Frozen):
    """Hyper-parameters of one training. `base` names the recipe that fills what is not given."""

    base: str | None = None
    epochs: Annotated[int, Field(ge=1)]
    batch_size: Annotated[int, Field(ge=1)]
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: Positive
    momentum: Share = 0.9
    weight_decay: NotNegative = 0.0
    decoupled_weight_decay: bool = False
    """Adam only: shrink the weights directly instead of through the gradient (AdamW always does)."""
    warmup_epochs: NotNegative = 0.0
    """Linear warm-up before the cosine; it shrinks in proportion when a run gets fewer epochs than the recipe."""
    label_smoothing: Share = 0.0
    rho: NotNegative
    augment: tuple[Augmentation, ...] = ()
    mixup_alpha: Positive = 0.2
    cutout_size: Annotated[int, Field(ge=1)] = 16
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto: bf16 on CUDA, fp32 elsewhere."""
    channels_last: bool = False
    compile: bool | str = False
    """True, or the name of a torch.compile backend."""
    clip: Positive | None = None
    """Largest norm of the gradient that the base optimizer steps with."""
    eps: Literal["local", "global"] | None = None
    """With several processes: each its own ascent, or one for all; None: local where the rule allows it."""

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
                "train longer or warm up for less"
            )
        return self


EMBEDDED_DATA = DataSpec(name="digits", validation=397, train_size=1000, label_noise=0.2)


class Task(Frozen):
    """Data, model and recipe of one training. `Task()` is the embedded default: noisy digits, a tiny CNN.

    >>> Task().recipe.epochs, Task.model_validate({"recipe": {"base": "cifar-cnn", "epochs": 9}}).recipe.lr
    (20, 0.1)
    """

    data: DataSpec = EMBEDDED_DATA
    model: ModelSpec = ModelSpec()
    recipe: Recipe = Field(default_factory=lambda: Recipe.model_validate("digits"))

    @property
    def augment(self) -> tuple[Augmentation, ...]:
        """The augmentations in force: the data's, or else the recipe's."""
        return self.recipe.augment if self.data.augment is None else self.data.augment


class Method(Frozen):
    """A schedule, an ascent rule and the strength of the mix.

    >>> Method(schedule={"family": "constant", "p": 0.5}, gamma_gnr=2).rule
    'sam'
    """

    schedule: dict[str, Any]
    gamma_gnr: NotNegative = 1.0
    """In units of rho: SAM is 1."""
    rule: str = "sam"
    rule_options: dict[str, Any] = {}
    policy: str = "coin"
    """What decides X_t given p(t)."""
    policy_options: dict[str, Any] = {}
    cap: Positive | None = None
    """The largest norm of the mixed gradient as a multiple of ‖g1‖; None: no limit."""
    rho: NotNegative | None = None
    """None: the recipe's."""

    @model_validator(mode="after")
    def _known_schedule_and_rule(self) -> Self:
        schedules.from_dict(self.schedule)
        rule, policy = ascent.build(self.rule, self.rule_options), policies.build(self.policy, self.policy_options)
        check_method(rule, policy, gamma_gnr=self.gamma_gnr, cap=self.cap)
        return self

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return the method of a configuration as the record keeps it, which has more keys than these."""
        return cls.model_validate({key: config[key] for key in cls.model_fields if key in config})
