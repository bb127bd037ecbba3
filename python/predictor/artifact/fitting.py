"""Whether artifacts can answer together: the same question, on the same sessions, in the same words."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from predictor.artifact.parts import Artifact
from predictor.covariates import sent_as
from predictor.errors import ConfigurationError
from predictor.networks import Target
from predictor.sessions import SessionCalendar


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What all members of an ensemble share."""

    target: Target
    quantiles: tuple[float, ...]
    calendar: str


def check_fit(members: Mapping[str, Artifact]) -> Common:
    """What these artifacts have in common, by the names of the members.

    Networks, features, encoder lengths, normalisers and seeds may differ.

    Raises:
        ConfigurationError: target, horizons, lag, quantiles or calendar differ, or a feature's name means different
            things.
    """
    first, *_ = members
    for name, member in members.items():
        _check_alike("target", first, members[first].manifest.target, name, member.manifest.target)
        _check_alike("quantiles", first, members[first].manifest.quantiles, name, member.manifest.quantiles)
    calendars = {name: member.pipeline.calendar for name, member in members.items()}
    for (a, one), (b, other) in combinations(calendars.items(), 2):
        _check_alike("calendar", a, one.name, b, other.name)
        _check_sessions(a, one, b, other)
    _check_names(members)
    _check_covariates(members)
    shared = members[first]
    return Common(
        target=shared.manifest.target, quantiles=shared.manifest.quantiles, calendar=shared.pipeline.calendar.name
    )


def _check_alike(what: str, a: str, one: object, b: str, other: object) -> None:
    if one != other:
        raise ConfigurationError(
            f"the {what} of {a} is {one}, that of {b} is {other}; members of an ensemble must share it: leave one out"
        )


def _check_sessions(a: str, one: SessionCalendar, b: str, other: SessionCalendar) -> None:
    """On the days that both calendars cover."""
    first, last = max(one.first, other.first), min(one.last, other.last)
    if first > last or not np.array_equal(one.sessions(first, last), other.sessions(first, last)):
        raise ConfigurationError(
            f"the calendars {one.name} of {a} and {b} hold other sessions; train one of them again with the calendar "
            "package of the other"
        )


def _check_names(members: Mapping[str, Artifact]) -> None:
    """A name in an explanation must mean one thing."""
    meanings: dict[str, tuple[str, str]] = {}
    for name, member in members.items():
        features = member.pipeline.features.features
        for feature in (*features.observed, *features.known):
            other, expression = meanings.setdefault(feature.name, (name, str(feature.expression)))
            if expression != str(feature.expression):
                raise ConfigurationError(
                    f"feature {feature.name!r} is {expression} in {other}, but {feature.expression} in {name}; "
                    "explanations could not tell them apart: rename one and train that member again"
                )


def _check_covariates(members: Mapping[str, Artifact]) -> None:
    """A caller sends each covariate once."""
    groups: dict[str, tuple[str, str]] = {}
    for name, member in members.items():
        for need in member.pipeline.covariates:
            other, group = groups.setdefault(need.name, (name, sent_as(need)))
            _check_alike(f"group of covariate {need.name!r}", other, group, name, sent_as(need))
