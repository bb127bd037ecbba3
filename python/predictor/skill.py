"""The skill of a model on held-out days, which accompanies every forecast."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The conclusion from the confidence interval of an improvement."""

    BETTER = "better"
    """The interval is above zero."""
    UNDECIDED = "undecided"
    """The interval contains zero, or there are too few days."""
    WORSE = "worse"
    """The interval is below zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """The relative improvement of the model's loss on the best baseline's, with a confidence interval."""

    rival: str
    """The best baseline on the same days."""
    improvement: float
    """1 - loss / rival's loss: 0.01 is one per cent better."""
    lower: float
    upper: float
    level: float
    """Confidence level of the interval, such as 0.9."""
    sentence: str
    """The same in words."""
    days_short: int = 0
    """Days that the split is too short for a verdict; 0 if it is long enough."""

    @property
    def verdict(self) -> Verdict:
        """Whether the improvement differs significantly from zero."""
        if self.days_short:
            return Verdict.UNDECIDED
        if self.lower > 0:
            return Verdict.BETTER
        return Verdict.WORSE if self.upper < 0 else Verdict.UNDECIDED

    @property
    def line(self) -> str:
        """The skill in one line.

        Such as `skill: not shown, improvement -0.4 % (90 %: -2.3 to +1.0 %) on held-out days against GARCH(1,1)-t`.
        """
        verdict = {Verdict.BETTER: "shown", Verdict.UNDECIDED: "not shown", Verdict.WORSE: "none, worse"}[self.verdict]
        value, lower, upper = (100 * share for share in (self.improvement, self.lower, self.upper))
        return (
            f"skill: {verdict}, improvement {value:+.1f} % ({100 * self.level:.0f} %: {lower:+.1f} to {upper:+.1f} %) "
            f"on held-out days against {self.rival}"
        )


def format_skill(skill: Skill | None) -> str:
    """The line below every forecast, also if the skill is unknown."""
    return "skill: unknown, the model's card has no baseline" if skill is None else skill.line
