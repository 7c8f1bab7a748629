"""Ways to damage a file: its bytes, or the values in it."""

import copy
import random
from typing import Any

HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**63, -(2**63), 10**30, 0.0, -0.0, 1e-320, 1e308, float("inf"), float("-inf"),
    float("nan"), "", "a", "[/red]", "${HOME}", "../../etc/passwd", "\0", "é" * 50, "1e400", "digits", "grst", "sam",
    "<script>alert(1)</script>", "!!python/object/apply:os.system [id]", "os:system", "constant", "x" * 10_000,
    [], [[]], {}, {"": {}}, [None], ["a", 1], {"a": [1, {"b": None}]}, list(range(200)),
)  # fmt: skip


def damage_bytes(data: bytes, chance: random.Random) -> bytes:
    """Return the bytes with one to four changes: flipped, cut, zeroed, inserted, repeated bytes, or the end cut off."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at, length = chance.randrange(len(changed) + 1), chance.choice((1, 2, 8, 64, 512))
        match chance.randrange(7):
            case 0 if at < len(changed):
                changed[at] = chance.randrange(256)
            case 1:
                del changed[at : at + length]
            case 2:
                changed[at : at + length] = bytes(len(changed[at : at + length]))
            case 3:
                changed[at:at] = chance.randbytes(length)
            case 4:
                changed[at:at] = changed[at : at + length] * chance.choice((1, 2, 20))
            case 5:
                del changed[at:]
            case _ if at < len(changed):
                changed[at] ^= 1 << chance.randrange(8)
    return bytes(changed)


def damage_value(content: Any, chance: random.Random) -> Any:
    """Return a copy of nested data in which one value is replaced, removed, moved or given another name."""
    content = copy.deepcopy(content)
    holder, key = chance.choice(_places(content) or [(None, None)])
    if holder is None:
        return chance.choice(HOSTILE)
    match chance.randrange(8):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[chance.choice(("x", "", key.upper() if isinstance(key, str) else "y", "__class__"))] = holder.pop(
                key
            )
        case 2:
            other, name = chance.choice(_places(content))
            holder[key] = copy.deepcopy(other[name])
        case 3:
            for _ in range(chance.choice((10, 200))):
                holder[key] = [holder[key]]
        case 4 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            holder[key] = holder[key] * chance.choice((-1, 0, 1e-9, 1e9, 1e300))
        case _:
            holder[key] = copy.deepcopy(chance.choice(HOSTILE))
    return content


def _places(content: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) of nested dicts and lists; of a long list, the first few."""
    found: list[tuple[Any, Any]] = []
    stack = [content]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            keys: list[Any] = list(item)
        elif isinstance(item, list):
            keys = list(range(min(len(item), 5)))
        else:
            continue
        for key in keys:
            found.append((item, key))
            stack.append(item[key])
    return found
