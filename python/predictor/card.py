"""The model card inside an artifact: training data, settings and scores, as typed values.

A card is for people: no forecast depends on it. Each section may be absent, and may have keys that are not read here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, TypeVar

from predictor.canonical import Json, Record, read_as
from predictor.skill import Skill

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Matrix = tuple[tuple[float, ...], ...]
SectionT = TypeVar("SectionT")
FactsT = TypeVar("FactsT", bound="DataclassInstance")

SOURCE: Final = "manifest.json"
MEAN_EXPLAINED: Final = "mean: average over horizons, each divided by the spread of its outcomes"
"""Explains the column `mean` of a score table."""
FITS_EXPLAINED: Final = (
    "calibrated: fitted on the training split and adjusted on the calibration split, like the model; refitted: fitted "
    "on the training, selection and calibration splits, not adjusted"
)
"""Explains the values of `ScoreRow.fit`."""
UNADJUSTED: Final = "none"
"""The value of `DataFacts.adjustment` for bars without splits and dividends."""
SPLITS: Final = ("train", "selection", "calibration", "test")
STARTS: Final = {
    "har": "HAR",
    "garch": "GARCH",
    "mix": "the mix of HAR and GARCH",
    "window": "the volatility of each window",
}
"""What a network starts from, by the scale that it learns in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFacts:
    """The bars that the model was trained and evaluated on; sessions are yyyymmdd."""

    symbols: tuple[str, ...]
    first_session: int
    last_session: int
    sessions: int
    sha256: str
    untaught: tuple[str, ...] = ()
    """Symbols without a window in the training split; empty if the card does not list them."""
    adjustment: str
    """The columns that record splits and dividends; `UNADJUSTED` for none."""
    notes: tuple[str, ...]

    @property
    def trained_symbols(self) -> frozenset[str]:
        """Symbols that have a window in the training split."""
        return frozenset(self.symbols) - frozenset(self.untaught)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One split of the data; `first` and `last` are sessions, yyyymmdd."""

    name: str
    first: int
    last: int
    windows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochLoss:
    """Mean pinball loss of one epoch, in units of each window's volatility."""

    epoch: int
    train: float
    selection: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFacts:
    """The course of the training; `parameters` counts the network's weights."""

    device: str
    precision: str
    parameters: int
    best_epoch: int
    """0 if no epoch improved on the initial weights."""
    best_selection: float
    """Selection loss of the weights that were kept."""
    epochs: tuple[EpochLoss, ...]
    """Empty for a model that is not trained in epochs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """Losses of the model or of one baseline; lower is better."""

    name: str
    is_model: bool
    pinball: tuple[float, ...]
    """[H]"""
    mean: float
    band_coverage: tuple[float, ...] = ()
    """[H] share of outcomes inside the band; empty if unknown."""
    fit: str = ""
    """The data that a baseline was fitted on, such as `calibrated`; empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTable:
    """Losses of the model and the baselines on one split."""

    unit: str
    split: str
    horizons: tuple[int, ...]
    band: tuple[float, ...]
    """Levels of the lowest and the highest quantile."""
    rows: tuple[ScoreRow, ...]

    @property
    def has_fits(self) -> bool:
        """Whether a row records the data that its baseline was fitted on."""
        return any(row.fit for row in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationFacts:
    """Observed coverage of each quantile, with a confidence interval of `level`; matrices are [H][Q]."""

    levels: tuple[float, ...]
    horizons: tuple[int, ...]
    observed: Matrix
    lower: Matrix
    upper: Matrix
    level: float
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformalFacts:
    """The conformal offsets' sample sizes, and their effect on the test split; one number per horizon."""

    effective_samples: tuple[float, ...]
    """Non-overlapping outcomes of the calibration split."""
    band_coverage_before: tuple[float, ...]
    """Share of outcomes between the lowest and the highest quantile."""
    band_coverage_after: tuple[float, ...]
    winkler_before: tuple[float, ...]
    """Winkler score of that band in the target's unit; lower is better."""
    winkler_after: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningFacts:
    """The hyperparameter search; losses are those of the selection split."""

    trials: int
    """All trials, pruned and failed ones included."""
    pruned: int
    failed: int
    best_trial_loss: float
    """The minimum over all trials, and therefore optimistic."""
    seed_losses: tuple[float, ...]
    """Losses of the best settings with new seeds."""
    mean: float
    standard_deviation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentModel:
    """The model whose weights a training run started from; data that the parent saw count as seen."""

    weights_hash: str
    symbols: tuple[str, ...]
    """Symbols that it was trained on."""
    seen_from: int
    """First session of its training split, yyyymmdd."""
    seen_until: int
    """Last session that a label of its training, selection or calibration split covers, yyyymmdd."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionFacts:
    """Where the weights of an adopted model come from. Quantra does not know the data that they were trained on."""

    architecture: str
    """The published class."""
    package: str
    """The package that runs it, with its version."""
    trained_until: int
    """Last day, yyyymmdd, of the data of its training as stated by the person who adopted it; counts as seen."""
    config_sha256: str
    weights_sha256: str
    license_file: str = ""
    """Empty if the folder had none."""
    license_sha256: str = ""
    tokenizer_config_sha256: str = ""
    """Empty if the model has no tokenizer in another folder."""
    tokenizer_weights_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFacts:
    """One member of an ensemble."""

    name: str
    kind: str
    """The network's kind."""
    encoder_length: int
    """Sessions that it reads."""
    bars_needed: int
    features: int
    """Number of features of all groups."""
    weights_hash: str
    weights: tuple[float, ...] = ()
    """[Q] its weight in the mean of each quantile; empty: all members have the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefutedMember:
    """A member that was left out of an ensemble, because it was significantly worse than the best."""

    name: str
    rival: str
    """The member with the lowest loss on these days."""
    improvement: float
    """Of its loss over the rival's, below 0."""
    lower: float
    upper: float

    @property
    def reason(self) -> str:
        """One sentence."""
        worse = f"{-100 * self.improvement:.1f} % ({-100 * self.upper:.1f} % to {-100 * self.lower:.1f} %)"
        return f"on the calibration days its loss is {worse} above that of {self.rival}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightingFacts:
    """How the members of an ensemble were chosen and weighted, on the calibration days that all members share."""

    rule: str
    """equal, screened or fitted."""
    first: int
    """First of these decision days, yyyymmdd."""
    last: int
    days: int
    blocks: int
    """Independent blocks of these days."""
    refuted: tuple[RefutedMember, ...]
    lean: float
    """Share of the fitted weights, the rest of which are equal; 0 unless the rule is fitted."""
    crossed: int
    """Test forecasts, one per window and horizon, whose weighted quantiles crossed and were sorted."""
    regret: tuple[float, ...] = ()
    """Loss on the test days relative to that of equal weights for all members, minus 1, with the ends of its interval;
    empty if the forecasts are the same."""
    days_short: int = 0
    """Days missing to tell skill from luck; unless 0, no member can be refuted."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """What was decided, and what it cost or gained."""
        sentences = [f"{check.name} is left out: {check.reason}" for check in self.refuted]
        if self.days_short:
            sentences.append(f"no member could be refuted: {self.days_short} more calibration days are needed")
        if self.lean:
            sentences.append(f"weights per quantile, {100 * self.lean:.0f} % of the way from equal to fitted ones")
        if self.crossed:
            sentences.append(f"{self.crossed} test forecasts had weighted quantiles that crossed and were sorted")
        if self.regret:
            value, lower, upper = (f"{100 * number:+.1f} %" for number in self.regret)
            sentences.append(
                f"regret against equal weights of all members, on the test days: {value} ({lower} to {upper})"
            )
        return tuple(sentences)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """All sections of a card; missing sections are None or empty."""

    data: DataFacts | None
    splits: tuple[Split, ...]
    recipe: tuple[tuple[str, str], ...]
    """Every training setting and its value as text."""
    training: TrainingFacts | None
    libraries: tuple[tuple[str, str], ...]
    scores: ScoreTable | None
    calibration: CalibrationFacts | None
    skill: Skill | None
    members: tuple[MemberFacts, ...] = ()
    """Members of an ensemble; empty for a single network."""
    combination: tuple[tuple[str, str], ...] = ()
    """Settings by which the members are combined into one forecast."""
    best_member: Skill | None = None
    """The ensemble's improvement on its best member, which takes the place of the baseline."""
    weighting: WeightingFacts | None = None
    """None for a single network, or an ensemble of equal weights whose members were not screened."""
    conformal: ConformalFacts | None = None
    tuning: TuningFacts | None = None
    """None without a hyperparameter search."""
    ancestors: tuple[ParentModel, ...] = ()
    """Models that it was fine-tuned from: its parent, the parent's parent and so on; empty if trained from scratch."""
    adopted: AdoptionFacts | None = None
    """None for a model that was trained by Quantra."""
    notes: tuple[str, ...] = ()
    """Remarks about the scores."""

    @property
    def trained_to(self) -> int:
        """Last session that a label of training, selection or calibration covers, yyyymmdd; 0 if unknown."""
        adopted = 0 if self.adopted is None else self.adopted.trained_until
        return max((split.last for split in self.splits if split.name != "test"), default=adopted)

    @property
    def seen_to(self) -> int:
        """As `trained_to`, with the models whose weights its training started from."""
        return max(self.trained_to, *(parent.seen_until for parent in self.ancestors), 0)

    @property
    def start_note(self) -> str:
        """One sentence if the network kept its initial weights; else empty."""
        recipe = dict(self.recipe)
        return _start_note(self.training, recipe, has_parent=bool(self.ancestors))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read `ModelInfo.card_json`.

        Raises:
            ArtifactError: a section is malformed; the message names the key.
        """
        record = Record.from_bytes(text.encode(), f"{SOURCE}, card")
        return cls(
            data=_read_facts(record, "data", DataFacts),
            splits=_read_section(record, "splits", _read_splits) or (),
            recipe=_read_section(record, "recipe", _read_pairs) or (),
            training=_read_facts(record, "training", TrainingFacts),
            libraries=_read_section(record, "libraries", _read_pairs) or (),
            scores=_read_facts(record, "scores", ScoreTable),
            calibration=_read_facts(record, "calibration", CalibrationFacts),
            skill=_read_section(record, "skill", _read_skill),
            members=_list(record, "members", MemberFacts),
            combination=_read_section(record, "combination", _read_pairs) or (),
            best_member=_read_section(record, "best_member", _read_skill),
            weighting=_read_facts(record, "weighting", WeightingFacts),
            conformal=_read_facts(record, "conformal", ConformalFacts),
            tuning=_read_facts(record, "tuning", TuningFacts),
            ancestors=_list(record, "ancestors", ParentModel),
            adopted=_read_facts(record, "adopted", AdoptionFacts),
            notes=record.texts("notes") if record.has("notes") else (),
        )


def _read_section(record: Record, key: str, read: Callable[[Record], SectionT]) -> SectionT | None:
    return read(record.record(key)) if record.has(key) else None


def _read_facts(record: Record, key: str, kind: type[FactsT]) -> FactsT | None:
    return _read_section(record, key, lambda section: read_as(section, kind))


def _list(record: Record, key: str, kind: type[FactsT]) -> tuple[FactsT, ...]:
    return tuple(read_as(item, kind) for item in record.records(key)) if record.has(key) else ()


def _read_splits(record: Record) -> tuple[Split, ...]:
    """The splits in chronological order."""
    parts = {name: record.record(name) for name in SPLITS if record.has(name)}
    return tuple(
        Split(name=name, first=part.integer("first"), last=part.integer("last"), windows=part.integer("windows"))
        for name, part in parts.items()
    )


def _read_pairs(record: Record) -> tuple[tuple[str, str], ...]:
    return tuple((key, _format(record.json(key))) for key in record.keys())  # noqa: SIM118 - a Record is not a dict


def _format(value: Json) -> str:
    if isinstance(value, list):
        return ", ".join(map(_format, value))
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return str(value)


def read_data_facts(card: Mapping[str, Json]) -> DataFacts | None:
    """Read the section `data` of a card; None if it is missing.

    Raises:
        ArtifactError: the section is malformed.
    """
    return _read_facts(Record(card, SOURCE, "card"), "data", DataFacts)


def read_ancestors(card: Mapping[str, Json]) -> tuple[ParentModel, ...]:
    """Read the models that the card's model started from, the parent first.

    Raises:
        ArtifactError: the section is malformed.
    """
    return _list(Record(card, SOURCE, "card"), "ancestors", ParentModel)


def read_adoption(card: Mapping[str, Json]) -> AdoptionFacts | None:
    """Read where the weights of an adopted model come from; None for a model that was trained by Quantra.

    Raises:
        ArtifactError: the section is malformed.
    """
    return _read_facts(Record(card, SOURCE, "card"), "adopted", AdoptionFacts)


def read_skill(card: Mapping[str, Json]) -> Skill | None:
    """Read the skill that a card records; None if it is missing.

    Raises:
        ArtifactError: the section is malformed.
    """
    return _read_section(Record(card, SOURCE, "card"), "skill", _read_skill)


def read_weighting(card: Mapping[str, Json]) -> WeightingFacts | None:
    """Read how the members of an ensemble were chosen; None for equal weights of all, or a single model.

    Raises:
        ArtifactError: the section is malformed.
    """
    return _read_facts(Record(card, SOURCE, "card"), "weighting", WeightingFacts)


def start_note_of(card: Mapping[str, Json]) -> str:
    """Read `Card.start_note` of a card.

    Raises:
        ArtifactError: a section that it depends on is malformed.
    """
    record = Record(card, SOURCE, "card")
    recipe = dict(_read_section(record, "recipe", _read_pairs) or ())
    return _start_note(_read_facts(record, "training", TrainingFacts), recipe, has_parent=bool(read_ancestors(card)))


def _start_note(training: TrainingFacts | None, recipe: Mapping[str, str], *, has_parent: bool) -> str:
    scale = recipe.get("scale", "")
    if training is None or training.best_epoch or not training.epochs:
        return ""
    return start_note(scale, has_map=recipe.get("network_highway") == _format(True), has_parent=has_parent)


def start_note(scale: str, *, has_map: bool, has_parent: bool) -> str:
    """One sentence on a network that kept its initial weights.

    Args:
        scale: the scale that it learns in; empty if unknown.
        has_map: whether it starts with a fitted linear map of the features.
        has_parent: whether it starts from the weights of another model.
    """
    if has_parent:
        return "the training added nothing to the weights that it started from"
    start = STARTS.get(scale, "its start")
    if has_map:
        return f"the network added nothing to {start} and a linear map of the features on these data"
    same = f": this model forecasts as `{scale}` does" if scale in {"har", "garch"} else ""
    return f"the network added nothing to {start} on these data{same}"


def _read_skill(record: Record) -> Skill:
    return Skill(
        rival=record.text("baseline"),
        improvement=record.number("improvement"),
        lower=record.number("lower"),
        upper=record.number("upper"),
        level=record.number("level"),
        sentence=record.text("sentence"),
        days_short=record.integer("days_short") if record.has("days_short") else 0,
    )
