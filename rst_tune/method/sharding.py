"""FSDP: parameters sharded over ranks. FSDP2 (`fully_shard`) is supported, FSDP1 is refused."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from rst_tune.errors import InputError
from rst_tune.method.ascent.rule import Rule


def shard_group(params: Sequence[Tensor]) -> Any:
    """Return the process group over which DTensors are sharded, or None for plain parameters."""
    mesh = getattr(params[0], "device_mesh", None)
    return None if mesh is None else mesh.get_group()


def check_sharding(model: nn.Module, params: Sequence[Tensor], rule: Rule) -> None:
    """Raise unless the parameters are plain, or all sharded over one mesh of one dimension, and the rule fits."""
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        raise InputError(
            "FSDP1 (FullyShardedDataParallel) hides the shards, so that norms over all ranks cannot be computed: "
            "shard the model with torch.distributed.fsdp.fully_shard (FSDP2)"
        )
    meshes = {getattr(p, "device_mesh", None) for p in params}
    if meshes == {None}:
        return
    if len(meshes) > 1 or any(mesh is None or mesh.ndim != 1 for mesh in meshes):
        raise InputError(
            f"all parameters must be sharded over one mesh with one dimension, but got {meshes}: "
            "call fully_shard on the whole model, without hybrid sharding"
        )
    if rule.keeps_vectors:
        raise InputError(
            f"rule {rule.name!r} keeps a vector of all parameters, which is not supported with FSDP2: use sam, asam, "
            "gsam, esam, sam-on or msam"
        )
