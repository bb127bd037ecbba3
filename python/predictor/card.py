"""The card inside an artifact: what the model was trained on and how well it does, as typed values for people to read.

Nothing is ever computed from a card. Each section may be absent, and may hold more than is read here.
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
MEAN_EXPLAINED: Final = "mean: over horizons, each first divided by how far outcomes spread at it"
"""What the last loss of a row of scores is, for people."""
FITS_EXPLAINED: Final = (
    "calibrated: fitted on the training part and moved on the calibration part, as the model is; refitted: fitted on "
    "training, selection and calibration part, not moved"
)
"""What the names of baselines say of what they were given, for people."""
UNADJUSTED: Final = "none"
"""The adjustment of bars that record no splits and dividends."""
SPLITS: Final = ("train", "selection", "calibration", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFacts:
    """The bars that the model was made from; sessions are yyyymmdd."""

    symbols: tuple[str, ...]
    first_session: int
    last_session: int
    sessions: int
    sha256: str
    untaught: tuple[str, ...] = ()
    """Symbols without a window in the training part, of which nothing was learnt; none where the card does not say."""
    adjustment: str
    """Which columns recorded splits and dividends; `UNADJUSTED` for none."""
    notes: tuple[str, ...]

    @property
    def taught(self) -> frozenset[str]:
        """Symbols that something was learnt of."""
        return frozenset(self.symbols) - frozenset(self.untaught)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One part of the data; `first` and `last` are sessions, yyyymmdd."""

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
    """How the training went; `parameters` counts the network's weights."""

    device: str
    precision: str
    parameters: int
    best_epoch: int
    """0 if nothing was better than the start."""
    best_selection: float
    """Selection loss of what was kept."""
    epochs: tuple[EpochLoss, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """Losses of the model or of one baseline; lower is better."""

    name: str
    is_model: bool
    pinball: tuple[float, ...]
    """[H]"""
    mean: float
    band_coverage: tuple[float, ...] = ()
    """[H] share of outcomes inside the scores' band; empty if unknown."""
    fit: str = ""
    """What of the model's information a baseline was given, such as `calibrated`; empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTable:
    """Losses on one split, the model's beside the baselines'."""

    unit: str
    split: str
    horizons: tuple[int, ...]
    band: tuple[float, ...]
    """Levels of the lowest and the highest quantile."""
    rows: tuple[ScoreRow, ...]

    @property
    def tells_fits(self) -> bool:
        """Whether it is known what the baselines were given."""
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
    """What the conformal offsets rest on, and what they did on the test split; one number per horizon each."""

    effective_samples: tuple[float, ...]
    """Outcomes of the calibration split that do not overlap."""
    band_coverage_before: tuple[float, ...]
    """Share of outcomes inside the band, from the lowest to the highest quantile."""
    band_coverage_after: tuple[float, ...]
    winkler_before: tuple[float, ...]
    """Score of that band in the target's unit; lower is better."""
    winkler_after: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningFacts:
    """The search that the settings come from; losses are those of the selection split."""

    trials: int
    """All trials, whatever came of them."""
    pruned: int
    failed: int
    best_trial_loss: float
    """The smallest of many, and so too optimistic."""
    seed_losses: tuple[float, ...]
    """Losses of the same settings from fresh seeds."""
    mean: float
    standard_deviation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentModel:
    """A model whose weights another one started from: all that it had seen, the other one has seen too."""

    weights_hash: str
    symbols: tuple[str, ...]
    """That it learnt from."""
    seen_from: int
    """First session of its training part, yyyymmdd."""
    seen_until: int
    """Last session that a label of its training, selection or calibration touched, yyyymmdd."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFacts:
    """One member of an ensemble."""

    name: str
    kind: str
    """Its network."""
    encoder_length: int
    """Sessions that it reads."""
    bars_needed: int
    features: int
    """How many it reads, of all groups."""
    weights_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """All sections of a card; those that the artifact lacks are None or empty."""

    data: DataFacts | None
    splits: tuple[Split, ...]
    recipe: tuple[tuple[str, str], ...]
    """Every setting of the training and its value as text."""
    training: TrainingFacts | None
    libraries: tuple[tuple[str, str], ...]
    scores: ScoreTable | None
    calibration: CalibrationFacts | None
    skill: Skill | None
    members: tuple[MemberFacts, ...] = ()
    """Members of an ensemble; none for a single network."""
    combination: tuple[tuple[str, str], ...] = ()
    """How the members become one forecast."""
    best_member: Skill | None = None
    """How much the ensemble improves on the best of its members, which takes the place of a baseline."""
    conformal: ConformalFacts | None = None
    tuning: TuningFacts | None = None
    """None where settings were not searched for."""
    ancestors: tuple[ParentModel, ...] = ()
    """Whose weights it started from: its parent first, then that one's own; none if it started anew."""
    notes: tuple[str, ...] = ()
    """What a reader of the scores must know."""

    @property
    def trained_to(self) -> int:
        """Last session that a label of training, selection or calibration touched, yyyymmdd; 0 if unknown."""
        return max((split.last for split in self.splits if split.name != "test"), default=0)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read `ModelInfo.card_json`.

        Raises:
            ArtifactError: a section holds something else than it must; the message names the key.
        """
        record = Record.from_bytes(text.encode(), f"{SOURCE}, card")
        return cls(
            data=_facts(record, "data", DataFacts),
            splits=_section(record, "splits", _splits) or (),
            recipe=_section(record, "recipe", _pairs) or (),
            training=_facts(record, "training", TrainingFacts),
            libraries=_section(record, "libraries", _pairs) or (),
            scores=_facts(record, "scores", ScoreTable),
            calibration=_facts(record, "calibration", CalibrationFacts),
            skill=_section(record, "skill", _skill),
            members=_listed(record, "members", MemberFacts),
            combination=_section(record, "combination", _pairs) or (),
            best_member=_section(record, "best_member", _skill),
            conformal=_facts(record, "conformal", ConformalFacts),
            tuning=_facts(record, "tuning", TuningFacts),
            ancestors=_listed(record, "ancestors", ParentModel),
            notes=record.texts("notes") if record.has("notes") else (),
        )


def _section(record: Record, key: str, read: Callable[[Record], SectionT]) -> SectionT | None:
    return read(record.record(key)) if record.has(key) else None


def _facts(record: Record, key: str, kind: type[FactsT]) -> FactsT | None:
    return _section(record, key, lambda section: read_as(section, kind))


def _listed(record: Record, key: str, kind: type[FactsT]) -> tuple[FactsT, ...]:
    return tuple(read_as(one, kind) for one in record.records(key)) if record.has(key) else ()


def _splits(record: Record) -> tuple[Split, ...]:
    """The splits there are, in the order of time."""
    return tuple(_split(name, record.record(name)) for name in SPLITS if record.has(name))


def _split(name: str, record: Record) -> Split:
    return Split(
        name=name, first=record.integer("first"), last=record.integer("last"), windows=record.integer("windows")
    )


def _pairs(record: Record) -> tuple[tuple[str, str], ...]:
    return tuple((key, _shown(record.json(key))) for key in record.keys())  # noqa: SIM118 - a Record is no dict


def _shown(value: Json) -> str:
    """A setting for people."""
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return str(value)


def data_of(card: Mapping[str, Json]) -> DataFacts | None:
    """What a card says of the bars; None if it says nothing.

    Raises:
        ArtifactError: it says something, but not what it must.
    """
    return _facts(Record(card, SOURCE, "card"), "data", DataFacts)


def ancestors_of(card: Mapping[str, Json]) -> tuple[ParentModel, ...]:
    """The models that the card's own model started from, the parent first.

    Raises:
        ArtifactError: it says something, but not what it must.
    """
    return _listed(Record(card, SOURCE, "card"), "ancestors", ParentModel)


def skill_of(card: Mapping[str, Json]) -> Skill | None:
    """The skill that a card records, if it does.

    Raises:
        ArtifactError: it records one that cannot be read.
    """
    return _section(Record(card, SOURCE, "card"), "skill", _skill)


def _skill(record: Record) -> Skill:
    return Skill(
        rival=record.text("baseline"),
        improvement=record.number("improvement"),
        lower=record.number("lower"),
        upper=record.number("upper"),
        level=record.number("level"),
        sentence=record.text("sentence"),
        days_short=record.integer("days_short") if record.has("days_short") else 0,
    )
