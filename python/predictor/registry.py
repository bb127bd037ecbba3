"""The models of a folder: `NAME/VERSION/` artifacts and `NAME/aliases.json`, loaded once, found by reference."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from predictor import artifact, canonical, golden
from predictor.canonical import Record
from predictor.catalog import ModelInfo
from predictor.errors import ArtifactError, ConfigurationError, ModelNotFoundError, VersionNotFoundError
from predictor.model import Answering, Ensemble, Identity, Model
from predictor.replacement import check_file, replace_file

ALIASES = "aliases.json"
CHAMPION = "champion"
"""The alias that a plain name stands for."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VERSION = re.compile(r"0|[1-9][0-9]{0,8}")
"""One spelling per version, so that 1 and 01 cannot both stand for it."""
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Runtime:
    """Where networks run, and how many rows at once."""

    device: torch.device
    max_rows: int

    def __post_init__(self) -> None:
        if self.max_rows < 1:
            raise ConfigurationError(f"rows at once are {self.max_rows}, but must be at least 1")


def load_model(folder: Path, identity: tuple[str, int], runtime: Runtime) -> Answering:
    """Read an artifact or an ensemble of artifacts, verify it, build the model and run every golden instance.

    Raises:
        ArtifactError: the artifact is not whole, or computes something other than was recorded.
    """
    return (
        _load_ensemble(folder, identity, runtime)
        if artifact.is_ensemble(folder)
        else load_single(folder, identity, runtime)
    )


def load_single(folder: Path, identity: tuple[str, int], runtime: Runtime) -> Model:
    """As `load_model`, of an artifact that holds one network.

    Raises:
        ArtifactError: as `load_model`, or the artifact is an ensemble.
    """
    stored = artifact.load(folder)
    name, version = identity
    try:
        model = Model.assemble(
            Identity(name=name, version=version, weights_hash=stored.weights_hash),
            stored.artifact,
            device=runtime.device,
            max_rows=runtime.max_rows,
        )
    except ConfigurationError as error:
        raise ArtifactError.of(artifact.MANIFEST, error.message) from error
    golden.check(model, stored.golden)
    return model


def _load_ensemble(folder: Path, identity: tuple[str, int], runtime: Runtime) -> Ensemble:
    stored = artifact.load_ensemble(folder)
    name, version = identity
    try:
        ensemble = Ensemble.assemble(
            Identity(name=name, version=version, weights_hash=stored.weights_hash),
            stored,
            device=runtime.device,
            max_rows=runtime.max_rows,
        )
    except ConfigurationError as error:
        raise ArtifactError.of(artifact.MANIFEST, error.message) from error
    golden.check_ensemble(ensemble, stored)
    return ensemble


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLine:
    """All versions of one model that loaded, and its aliases."""

    versions: Mapping[int, Answering]
    aliases: Mapping[str, int]
    refused: frozenset[int] = frozenset()
    """Versions that exist, but cannot be served."""

    @property
    def default(self) -> int:
        """The version that the plain name means: the champion's, else the newest."""
        return self.aliases.get(CHAMPION, max(self.versions))

    def aliases_of(self, version: int) -> tuple[str, ...]:
        """Aliases that name this version, sorted."""
        return tuple(sorted(alias for alias, v in self.aliases.items() if v == version))

    def lost(self) -> dict[str, str]:
        """What is wrong with each alias that names a version which is not served."""
        return {
            alias: f"names version {version}, which {self._fate(version)}"
            for alias, version in sorted(self.aliases.items())
            if version not in self.versions
        }

    def _fate(self, version: int) -> str:
        return "was refused when it was loaded" if version in self.refused else "is missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Every model that can answer. Immutable: another set of models needs another registry."""

    lines: Mapping[str, ModelLine]
    problems: tuple[ArtifactError, ...]
    """What was refused, each naming its folder, file and cause."""

    @classmethod
    def open(cls, models: Path, runtime: Runtime) -> "Registry":
        """Load every version below a folder.

        Raises:
            ConfigurationError: the folder is missing or holds no model that loads.
        """
        if not models.is_dir():
            raise ConfigurationError(f"{models}: there is no such folder; train a model into {models}/NAME/1 first")
        lines: dict[str, ModelLine] = {}
        problems: list[ArtifactError] = []
        for folder in sorted(p for p in models.iterdir() if p.is_dir() and _NAME.fullmatch(p.name)):
            line, refused = _open_line(folder, runtime)
            problems.extend(refused)
            if line is not None:
                lines[folder.name] = line
        if not lines:
            causes = "".join(f"\n  {problem.message}" for problem in problems)
            raise ConfigurationError(f"{models}: holds no model that can be served; expected NAME/1 folders{causes}")
        return cls(lines=lines, problems=tuple(problems))

    def find(self, reference: str) -> Answering:
        """The model that "NAME", "NAME@VERSION" or "NAME@ALIAS" means; an empty reference means the only one.

        Raises:
            ModelNotFoundError: there is no model of that name, or none is named and there are several.
            VersionNotFoundError: the model has no such version or alias, or the alias names one that is not served.
        """
        asked, _, selector = reference.partition("@")
        name = asked or self._only_name()
        line = self.lines.get(name)
        if line is None:
            raise ModelNotFoundError(f"there is no model {name[:_SHOWN]!r}; there are {sorted(self.lines)}")
        version = line.default if not selector else line.aliases.get(selector, _number(selector))
        if version not in line.versions:
            raise _not_found(name, line, selector)
        return line.versions[version]

    def info(self, model: Answering) -> ModelInfo:
        """What a model of this registry is."""
        line, version = self.lines[model.identity.name], model.identity.version
        return model.info(line.aliases_of(version), is_default=line.default == version)

    def infos(self) -> tuple[ModelInfo, ...]:
        """Every version of every model, by name and version."""
        lines = (self.lines[name] for name in sorted(self.lines))
        return tuple(self.info(line.versions[version]) for line in lines for version in sorted(line.versions))

    def without_champion(self) -> tuple[str, ...]:
        """Models that serve their newest version for want of an alias, so that a retrained one goes live unseen."""
        return tuple(sorted(name for name, line in self.lines.items() if CHAMPION not in line.aliases))

    def _only_name(self) -> str:
        if len(self.lines) > 1:
            names = sorted(self.lines)
            raise ModelNotFoundError(
                f"no model is named, and several are served: {', '.join(names)}; name one, such as {names[0]} (on the "
                f"command line --model {names[0]})"
            )
        return next(iter(self.lines))


def _not_found(name: str, line: ModelLine, selector: str) -> VersionNotFoundError:
    lost = line.lost()
    aliases = sorted(line.aliases.keys() - lost.keys())
    what = f"alias {selector!r} {lost[selector]}" if selector in lost else f"no version or alias {selector[:_SHOWN]!r}"
    return VersionNotFoundError(
        f"model {name!r} has {what}; it has versions {sorted(line.versions)} and aliases {aliases}"
    )


def read_aliases(line: Path) -> dict[str, int]:
    """Aliases of the model in this folder.

    Raises:
        ArtifactError: the file is not an object of integers, or a key is not an alias.
    """
    path, source = line / ALIASES, f"{line.name}/{ALIASES}"
    if not path.is_file():
        return {}
    record = Record.from_bytes(path.read_bytes(), source)
    aliases = {alias: record.integer(alias) for alias in record.keys()}  # noqa: SIM118 - a Record is no dict
    wrong = [alias for alias in aliases if not _is_alias(alias)]
    if wrong:
        raise ArtifactError.of(source, f"{wrong[0][:_SHOWN]!r} is not an alias; {_ALIAS_RULE}")
    return aliases


def set_alias(line: Path, alias: str, version: int) -> None:
    """Point an alias of the model in this folder to a version, in one step.

    Raises:
        ConfigurationError: the alias is not a valid name, the version does not exist, or the folder cannot be written.
    """
    if not _is_alias(alias):
        raise ConfigurationError(f"{alias[:_SHOWN]!r} is not an alias; {_ALIAS_RULE}")
    if not artifact.is_artifact(line / str(version)):
        raise ConfigurationError(f"{line}: has no version {version}; it has {_versions(line)}")
    check_file(line / ALIASES)
    content = canonical.to_bytes(read_aliases(line) | {alias: version})
    replace_file(line / ALIASES, content)


def alias_problems(folder: Path, runtime: Runtime) -> list[ArtifactError]:
    """What a server would report about the aliases of the model in this folder: each must name a version that loads."""
    try:
        aliases = read_aliases(folder)
    except ArtifactError as error:
        return [error]
    there = frozenset(aliases.values()) & frozenset(_versions(folder))
    versions, _ = _load_versions(folder, there, runtime)
    return _lost(folder, ModelLine(versions=versions, aliases=aliases, refused=there - versions.keys()))


def _open_line(folder: Path, runtime: Runtime) -> tuple[ModelLine | None, list[ArtifactError]]:
    there = _versions(folder)
    versions, problems = _load_versions(folder, there, runtime)
    try:
        aliases = read_aliases(folder)
    except ArtifactError as error:
        return None, [*problems, error]
    line = ModelLine(versions=versions, aliases=aliases, refused=frozenset(there) - versions.keys())
    is_served = bool(versions) and CHAMPION not in line.lost()
    return (line if is_served else None), [*problems, *_lost(folder, line)]


def _lost(folder: Path, line: ModelLine) -> list[ArtifactError]:
    """One problem for each alias that names a version which is not served."""
    return [
        ArtifactError.of(f"{folder.name}/{ALIASES}", f"alias {alias!r} {what}, so {_consequence(alias)}")
        for alias, what in line.lost().items()
    ]


def _consequence(alias: str) -> str:
    """Serving another version in the champion's place would be a fallback that nobody sees."""
    return "no version is served" if alias == CHAMPION else "nothing answers to it"


def _load_versions(
    folder: Path, wanted: Iterable[int], runtime: Runtime
) -> tuple[dict[int, Answering], list[ArtifactError]]:
    """Those that load, and what is wrong with the others."""
    versions: dict[int, Answering] = {}
    problems: list[ArtifactError] = []
    for version in wanted:
        try:
            versions[version] = load_model(folder / str(version), (folder.name, version), runtime)
        except ArtifactError as error:
            problems.append(ArtifactError(f"{folder.name}/{version}: {error.message}", metadata=error.metadata))
    return versions, problems


def _versions(line: Path) -> list[int]:
    return sorted(int(p.name) for p in line.iterdir() if p.is_dir() and _VERSION.fullmatch(p.name))


_ALIAS_RULE = "it must be 1 to 64 letters, digits, dots, dashes and underscores, and not a number"


def _is_alias(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and not text.isdigit()


def _number(text: str) -> int:
    """The version that a selector spells, or -1, which no model has."""
    return int(text) if _VERSION.fullmatch(text) else -1
