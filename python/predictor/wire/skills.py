"""How a model did on held-out days, on the wire."""

from collections.abc import Mapping
from typing import Final

from predictor._pb import prediction_pb2 as pb
from predictor.skill import Skill, Verdict

_VERDICTS: Final[Mapping[Verdict, pb.SkillVerdict]] = {
    Verdict.BETTER: pb.SKILL_VERDICT_BETTER,
    Verdict.UNDECIDED: pb.SKILL_VERDICT_UNDECIDED,
    Verdict.WORSE: pb.SKILL_VERDICT_WORSE,
}


def encode(skill: Skill | None) -> pb.Skill | None:
    """The message of a skill; the field stays absent where nothing is known."""
    if skill is None:
        return None
    return pb.Skill(
        rival=skill.rival,
        improvement=skill.improvement,
        lower=skill.lower,
        upper=skill.upper,
        level=skill.level,
        verdict=_VERDICTS[skill.verdict],
        sentence=skill.sentence,
        days_short=skill.days_short,
        line=skill.line,
    )


def decode(message: pb.Skill) -> Skill:
    """The skill of a message; its verdict and line follow from the numbers."""
    return Skill(
        rival=message.rival,
        improvement=message.improvement,
        lower=message.lower,
        upper=message.upper,
        level=message.level,
        sentence=message.sentence,
        days_short=message.days_short,
    )
