"""Whether what a caller sent is what a model reads."""

from collections.abc import Sequence

from predictor.catalog import CovariateGroup, CovariateInfo
from predictor.covariates.aligned import Covariates
from predictor.errors import CovariateMissingError, UnknownCovariateError


def check_sent(needs: Sequence[CovariateInfo], sent: Covariates) -> None:
    """Compare names and groups.

    Raises:
        CovariateMissingError: naming the first covariate that the model reads and that is not there, or in another
            group.
        UnknownCovariateError: naming the first that the model does not read.
    """
    groups = _groups(sent)
    for need in needs:
        wanted = sent_as(need)
        if groups.get(need.name) != wanted:
            found = f"sent as {groups[need.name]}" if need.name in groups else "not sent"
            raise CovariateMissingError(
                f"covariate {need.name} is {found}, but the model reads it as {wanted}; send it with the bars",
                metadata={"covariate": need.name, "group": need.group},
            )
    read = dict.fromkeys(need.name for need in needs)
    for name in groups:
        if name not in read:
            raise UnknownCovariateError(
                f"covariate {name} is not the model's; it reads {', '.join(read) or 'none'}",
                metadata={"covariate": name},
            )


def _groups(sent: Covariates) -> dict[str, str]:
    return {
        **dict.fromkeys(sent.observed, "observed"),
        **dict.fromkeys(sent.known, "known"),
        **dict.fromkeys(sent.numbers, "a static number"),
        **dict.fromkeys(sent.categories, "a static text"),
    }


def sent_as(need: CovariateInfo) -> str:
    """The group that a covariate must be sent in, in words."""
    if need.group is not CovariateGroup.STATIC:
        return need.group.value
    return "a static text" if need.categories else "a static number"
