"""How a model did on days that it had not seen: it comes with every answer, as a fan alone says nothing of it."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What the confidence interval of an improvement says."""

    BETTER = "better"
    """All of it lies above zero."""
    UNDECIDED = "undecided"
    """Zero lies within, or the data are too few to tell."""
    WORSE = "worse"
    """All of it lies below zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """How much smaller the model's loss is than its best rival's, as a share of it, with its interval of `level`."""

    rival: str
    """The best baseline on the same days."""
    improvement: float
    """1 - loss / the rival's loss: 0.01 is one per cent better."""
    lower: float
    upper: float
    level: float
    """Confidence level of the interval, such as 0.9."""
    sentence: str
    """The same in words."""
    days_short: int = 0
    """Days that the split lacks for any verdict; 0 if it is long enough."""

    @property
    def verdict(self) -> Verdict:
        """Whether the improvement can be told from luck."""
        if self.days_short:
            return Verdict.UNDECIDED
        if self.lower > 0:
            return Verdict.BETTER
        return Verdict.WORSE if self.upper < 0 else Verdict.UNDECIDED

    @property
    def line(self) -> str:
        """A short line for people.

        Such as `skill: not shown, improvement -0.4 % (90 %: -2.3 to +1.0 %) on held-out days against GARCH(1,1)-t`.
        """
        said = {Verdict.BETTER: "shown", Verdict.UNDECIDED: "not shown", Verdict.WORSE: "none, worse"}[self.verdict]
        value, lower, upper = (100 * share for share in (self.improvement, self.lower, self.upper))
        return (
            f"skill: {said}, improvement {value:+.1f} % ({100 * self.level:.0f} %: {lower:+.1f} to {upper:+.1f} %) "
            f"on held-out days against {self.rival}"
        )


def line_of(skill: Skill | None) -> str:
    """The line shown below every answer, also where nothing is known."""
    return "skill: unknown, the model's card compares it with nothing" if skill is None else skill.line
