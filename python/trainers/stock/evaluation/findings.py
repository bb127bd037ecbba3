"""Summary of an evaluation in three sentences."""

from math import isfinite

from predictor.report.templates import level
from predictor.skill import Verdict
from trainers.stock.evaluation.evaluation import ModelEvaluation
from trainers.stock.evaluation.evaluation_set import Interval
from trainers.stock.evaluation.scores import ModelScores, ScoreRole


def findings(evaluation: ModelEvaluation) -> tuple[str, str, str]:
    """Sentences on accuracy, on coverage of the bands, and on the role of luck."""
    return _accuracy(evaluation), _honesty(evaluation), _luck(evaluation)


def _accuracy(evaluation: ModelEvaluation) -> str:
    skill = evaluation.skill
    rival = skill.baseline if len(skill.rivals) == 1 else f"the best of {len(skill.rivals)} {skill.among}"
    error = f"its error was {_smaller(skill.improvement.value)} than that of {skill.baseline}{_reach(evaluation)}"
    if skill.days_short:
        days = "1 day" if skill.days_short == 1 else f"{skill.days_short} days"
        return f"These days are {days} too few to tell skill from luck; on them {error}."
    said = {
        Verdict.BETTER: f"The model forecast better than {rival}: {error}, all of it on the better side.",
        Verdict.UNDECIDED: f"The model is not distinguishable from {rival}: {error}, so the difference may be luck.",
        Verdict.WORSE: f"The model forecast worse than {rival}: {error}, all of it on the worse side.",
    }
    return said[skill.verdict]


def _reach(evaluation: ModelEvaluation) -> str:
    """The interval of the improvement as text; empty if unknown."""
    i = evaluation.skill.improvement
    if not (isfinite(i.lower) and isfinite(i.upper)):
        return ""
    return f", by a {100 * evaluation.level:.0f} % interval between {_smaller(i.lower)} and {_smaller(i.upper)}"


def _smaller(share: float) -> str:
    """A loss that is `share` of the other's below it: `1.2 % smaller`, `0.3 % larger`, `0.0 % smaller`."""
    rounded = round(100 * share, 1)
    return f"{abs(rounded):.1f} % {'larger' if rounded < 0 else 'smaller'}"


def _honesty(evaluation: ModelEvaluation) -> str:
    """Share of outcomes between the outermost quantiles, or below a single one, against its nominal value."""
    lowest, highest = evaluation.levels[0], evaluation.levels[-1]
    is_band = lowest < highest
    nominal = highest - lowest if is_band else lowest
    shares = [h.band if is_band else h.below[0] for h in _model(evaluation).horizons]
    where = f"between the quantiles {level(lowest)} and {level(highest)}" if is_band else f"below the {level(lowest)}"
    held = sum(share.value for share in shares) / len(shares)
    return (
        f"{100 * held:.1f} % of the outcomes fell {where}, where {100 * nominal:g} % should; {_off(shares, nominal)}."
    )


def _off(shares: list[Interval], nominal: float) -> str:
    """Number of horizons at which the nominal share is outside the interval."""
    known = [share for share in shares if isfinite(share.lower) and isfinite(share.upper)]
    few, many = sum(share.upper < nominal for share in known), sum(share.lower > nominal for share in known)
    if not known:
        return "it is unknown how much of the difference is luck"
    if not few and not many:
        return "luck explains the difference at every horizon"
    parts = [f"too few at {few}" if few else "", f"too many at {many}" if many else ""]
    return f"more than luck explains: {' and '.join(filter(None, parts))} of {len(shares)} horizons"


def _luck(evaluation: ModelEvaluation) -> str:
    """The spread over seeds if several were trained, else the number of symbols with a smaller error."""
    seeds = evaluation.seeds
    if seeds is not None and len(seeds.seeds) > 1 and seeds.mean.mean:
        spread = 100 * seeds.mean.sd / seeds.mean.mean
        return (
            f"Over {len(seeds.seeds)} seeds the error varied by {spread:.1f} % (standard deviation): a difference "
            "of that size does not distinguish two models."
        )
    gains = [row.improvement.value for row in evaluation.by_symbol if isfinite(row.improvement.value)]
    better, known = sum(gain > 0 for gain in gains), len(gains)
    return (
        f"The error was smaller than that of {evaluation.skill.baseline} for {better} of {known} "
        f"symbol{'' if known == 1 else 's'}; only one training was evaluated, so the effect of its seed is unknown."
    )


def _model(evaluation: ModelEvaluation) -> ModelScores:
    return next(row for row in evaluation.rows if row.role is ScoreRole.MODEL)
