"""What a network says of itself, with the names of variables and sessions."""

from predictor.features import FittedFeatures
from predictor.forecast import Internal, InternalAxis
from predictor.model.answers import summed
from predictor.networks import Internals, Target

SHARE_KNOWN = "share of known cells"
"""The last variable of every past session."""


def internals_of(found: Internals, features: FittedFeatures, target: Target, h: int) -> tuple[Internal, ...]:
    """The internals of N windows that concern horizon `h`; those that the network lacks are left out.

    Variables are named as in an attribution's rows: a known or static feature of several columns is one variable, and
    its columns' weights are added. Sessions count from the last bar's, 0; those after the horizon's end, which the
    network does not look at, are left out.
    """
    known, ahead = features.features.known_names, target.lag + target.horizons[h]
    length, observed = found.past.shape[1], len(features.features.names)
    variables = (*range(observed), *(observed + k for k in features.known_groups), observed + len(known))
    sessions = tuple("0" if k == 0 else f"{k:+d}" for k in range(1 - length, ahead + 1))
    inputs = InternalAxis.INPUTS
    every = (
        (
            "selection of past variables",
            inputs,
            (*features.features.names, *known, SHARE_KNOWN),
            found.past.mean(1),
            variables,
        ),
        ("selection of future variables", inputs, known, found.future[:, :ahead].mean(1), features.known_groups),
        ("selection of static variables", inputs, features.statics.names, found.static, range(found.static.shape[1])),
        ("attention", InternalAxis.SESSIONS, sessions, found.attention[:, h, : len(sessions)], range(len(sessions))),
    )
    return tuple(
        Internal(name=name, axis=axis, labels=labels, values=summed(weights.double().numpy(), groups, len(labels)))
        for name, axis, labels, weights, groups in every
        if labels
    )
