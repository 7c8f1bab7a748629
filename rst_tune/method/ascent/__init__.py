"""The ascent rules by name, one file per rule. `rule.py` has the protocol."""

from collections.abc import Mapping
from typing import Any

from rst_tune.method import options as _options
from rst_tune.method.ascent.asam import ASAM
from rst_tune.method.ascent.esam import ESAM
from rst_tune.method.ascent.fsam import FSAM
from rst_tune.method.ascent.gsam import GSAM
from rst_tune.method.ascent.looksam import LookSAM
from rst_tune.method.ascent.msam import MSAM
from rst_tune.method.ascent.rule import Rule
from rst_tune.method.ascent.s2sam import S2SAM
from rst_tune.method.ascent.sam import SAM
from rst_tune.method.ascent.samon import SAMON
from rst_tune.method.ascent.ssam import SSAM
from rst_tune.method.ascent.vasso import VASSO
from rst_tune.registry import Registry

__all__ = ["RULES", "Rule", "build"]

RULES: Registry[type[Rule]] = Registry("rule")
RULES.add("sam", SAM, "one ascent step of length rho along the gradient", "Foret et al., ICLR 2021")
RULES.add("asam", ASAM, "an ascent step scaled by the size of the weights", "Kwon et al., ICML 2021")
RULES.add("gsam", GSAM, "SAM that also minimizes the gap to the unperturbed loss", "Zhuang et al., ICLR 2022")
RULES.add("looksam", LookSAM, "one second pass per k ascents, its direction reused", "Liu et al., CVPR 2022")
RULES.add("esam", ESAM, "a random subset of tensors, the samples whose loss rose most", "Du et al., ICLR 2022")
RULES.add("ssam", SSAM, "a subset of entries by a Fisher or a dynamic mask", "Mi et al., NeurIPS 2022")
RULES.add("fsam", FSAM, "ascent along the gradient minus its running mean", "Li et al., CVPR 2024")
RULES.add("vasso", VASSO, "ascent along a running mean of the gradients", "Li and Giannakis, NeurIPS 2023")
RULES.add("sam-on", SAMON, "ascent of normalization layers only", "Müller et al., NeurIPS 2023")
RULES.add("s2sam", S2SAM, "one pass, ahead along the gradient of the step before", "Ji et al., NeurIPS 2024")
RULES.add("msam", MSAM, "one pass, ahead along the base optimizer's momentum", "Becker et al., arXiv 2401.12033")


def build(name: str, options: Mapping[str, Any] | None = None) -> Rule:
    """Return a fresh rule with its options.

    >>> build("looksam", {"k": 5}).expected_pairs([1.0] * 10)
    2.0
    """
    return _options.build(RULES, name, options)
