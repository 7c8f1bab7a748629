"""The ascent rules that RST runs over, by name. One file a rule, behind the small protocol of `rule.py`."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from rst_tune.errors import InputError, unknown_name
from rst_tune.method.ascent.asam import ASAM
from rst_tune.method.ascent.esam import ESAM
from rst_tune.method.ascent.gsam import GSAM
from rst_tune.method.ascent.looksam import LookSAM
from rst_tune.method.ascent.rule import Rule
from rst_tune.method.ascent.sam import SAM
from rst_tune.method.ascent.ssam import SSAM
from rst_tune.registry import Registry

__all__ = ["RULES", "Rule", "build"]

RULES: Registry[type[Rule]] = Registry("rule")
RULES.add("sam", SAM, "one step of length rho up the gradient", "Foret et al., ICLR 2021")
RULES.add("asam", ASAM, "a step measured in units of the weights themselves", "Kwon et al., ICML 2021")
RULES.add("gsam", GSAM, "SAM that also closes the gap to the unperturbed loss", "Zhuang et al., ICLR 2022")
RULES.add("looksam", LookSAM, "one second pass for every k ascents, its direction reused", "Liu et al., CVPR 2022")
RULES.add("esam", ESAM, "a random part of the tensors, the samples that got worse", "Du et al., ICLR 2022")
RULES.add("ssam", SSAM, "a part of the entries, chosen by Fisher information or moving", "Mi et al., NeurIPS 2022")


def build(name: str, options: Mapping[str, Any] | None = None) -> Rule:
    """Return a fresh rule with its options.

    >>> build("sam").expected_pairs
    1.0
    """
    kind = RULES[name]
    known = [field.name for field in fields(kind) if field.init]
    for option in options or {}:
        if option not in known:
            raise unknown_name(f"option of rule {name}", option, known)
    try:
        return kind(**(options or {}))
    except TypeError as error:
        raise InputError(f"rule {name!r} takes {', '.join(known) or 'no options'}, but got {options!r}") from error
