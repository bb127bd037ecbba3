"""The settings that identify a training, and how those of two trainings differ."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from trainers.loop.errors import SettingsError

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

SHOWN_CHARACTERS = 60


def plain(settings: Mapping[str, Json]) -> dict[str, Json]:
    """A copy as it will come back from a file: tuples as lists.

    Raises:
        SettingsError: They are no JSON, which has neither NaN nor infinity.
    """
    try:
        text = json.dumps(settings, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SettingsError(
            f"the settings of checkpoints must be numbers, strings, lists and mappings with string keys: {error}"
        ) from error
    return json.loads(text)


def differences(saved: Mapping[str, Json], wanted: Mapping[str, Json]) -> list[str]:
    """Every setting that is not the same, with both values; nested ones by their path, such as `network.layers`."""
    before, now = dict(_flat(saved)), dict(_flat(wanted))
    names = [*before, *(name for name in now if name not in before)]
    return [
        f"{name} was {_shown(before, name)} and is now {_shown(now, name)}"
        for name in names
        if name not in before or name not in now or before[name] != now[name]
    ]


def _flat(settings: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, Json]]:
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _shown(values: Mapping[str, Json], name: str) -> str:
    if name not in values:
        return "absent"
    text = json.dumps(values[name], ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"
