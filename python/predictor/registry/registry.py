"""Every model that can answer, found by reference; another set of models is another registry."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from predictor.catalog import ModelInfo
from predictor.errors import ArtifactError, ConfigurationError, ModelNotFoundError, VersionNotFoundError
from predictor.model import Predictor
from predictor.registry.layout import CHAMPION, SHOWN, meant_by, names_in, version_number
from predictor.registry.line import ModelReader, ModelReload, ModelVersions
from predictor.registry.loading import Runtime
from predictor.registry.lock import VersionLock


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Every model that can answer. Immutable: another set of models needs another registry."""

    lines: Mapping[str, ModelVersions]
    problems: tuple[ArtifactError, ...]
    """What was refused, each naming its folder, file and cause."""

    @classmethod
    def open(cls, models: Path, runtime: Runtime, lock: VersionLock | None = None) -> "Registry":
        """Verify every version below a folder, and build of each model what its plain name means.

        Args:
            models: NAME/VERSION artifacts.
            runtime: where networks run.
            lock: which versions may be served; None: all.

        Raises:
            ConfigurationError: the folder is missing or holds no model that can be served.
        """
        try:
            names = names_in(models)
        except FileNotFoundError as error:
            there_is_none = f"{models}: there is no such folder; train a model into {models}/NAME/1 first"
            raise ConfigurationError(there_is_none) from error
        except OSError as error:
            raise ConfigurationError(f"{models}: the folder cannot be read: {error.strerror}") from error
        reader = ModelReader(models, runtime, lock)
        registry = cls(lines={}, problems=())
        for name in sorted(names | reader.locked):
            registry = registry.renewed(name, reader.opened(name) if name in names else reader.absent(name))
        if not registry.lines:
            causes = "".join(f"\n  {problem.message}" for problem in registry.problems)
            raise ConfigurationError(
                f"{models}: holds no model that can be served; expected NAME/1 folders{meant_by(models)}{causes}"
            )
        return registry

    def find(self, reference: str) -> Predictor:
        """The model that "NAME", "NAME@VERSION" or "NAME@ALIAS" means; an empty reference means the only one.

        Raises:
            ModelNotFoundError: there is no model of that name, or none is named and there are several.
            VersionNotFoundError: the model has no such version or alias, or the alias names one that is not served.
        """
        asked, at, selector = reference.partition("@")
        name = asked or self._only_name()
        line = self.lines.get(name)
        if line is None:
            raise ModelNotFoundError(f"there is no model {name[:SHOWN]!r}; there are {sorted(self.lines)}")
        version = line.default if not at else line.aliases.get(selector, version_number(selector))
        model = None if version is None else line.versions.get(version)
        if model is None:
            raise _not_found(name, line, selector)
        return model

    def info(self, model: Predictor) -> ModelInfo:
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

    def renewed(self, name: str, renewal: ModelReload) -> "Registry":
        """The registry with what became of one model's line; the same object if that is what it was."""
        own = [problem for problem in self.problems if problem.metadata.get("model") == name]
        untried = {str(version) for version in renewal.untried}
        still = [problem for problem in own if problem.metadata.get("version") in untried]
        new = [*still, *renewal.failures, *renewal.remarks]
        if renewal.line == self.lines.get(name) and [p.message for p in new] == [p.message for p in own]:
            return self
        others = {other: line for other, line in self.lines.items() if other != name}
        return Registry(
            lines=others if renewal.line is None else others | {name: renewal.line},
            problems=(*(problem for problem in self.problems if problem not in own), *new),
        )

    def _only_name(self) -> str:
        if not self.lines:
            raise ModelNotFoundError("no model is served; load one first")
        if len(self.lines) > 1:
            names = sorted(self.lines)
            raise ModelNotFoundError(
                f"no model is named, and several are served: {', '.join(names)}; name one, such as {names[0]} (on the "
                f"command line --model {names[0]})"
            )
        return next(iter(self.lines))


def _not_found(name: str, line: ModelVersions, selector: str) -> VersionNotFoundError:
    lost = line.lost()
    aliases = sorted(line.aliases.keys() - lost.keys())
    what = f"alias {selector!r} {lost[selector]}" if selector in lost else f"no version or alias {selector[:SHOWN]!r}"
    return VersionNotFoundError(
        f"model {name!r} has {what}; it has versions {sorted(line.versions)} and aliases {aliases}"
    )
