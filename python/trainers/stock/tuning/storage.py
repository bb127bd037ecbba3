"""Where a search's trials are kept, so that it goes on after it was stopped, or in several processes at once."""

import hashlib
import re
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

from predictor import canonical
from predictor.canonical import Json
from predictor.errors import ConfigurationError, MissingPackageError

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import RDBStorage

SETTINGS: Final = "settings_sha256"
STARTUP_TRIALS: Final = 5
"""Trials that are drawn blindly and never pruned; later ones are compared with them."""
WARMUP_EPOCHS: Final = 2
_SECRET: Final = re.compile(r"passw|pwd|secret|token", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyStorage:
    """A study in a database.

    Attributes:
        uri: As SQLAlchemy writes it, such as `sqlite:///tune.db`; a server's lets several machines search together.
        name: Of the study in it.
    """

    uri: str
    name: str

    def __post_init__(self) -> None:
        """Refuse a password, which the command line would show to every user of the machine."""
        parts = urlsplit(self.uri)
        if parts.password or any(_SECRET.search(name) for name, _ in parse_qsl(parts.query)):
            raise ConfigurationError("the storage's address holds a password; put it into the database's password file")


def require_optuna() -> None:
    """Raise MissingPackageError, naming the extra, unless optuna is installed."""
    if find_spec("optuna") is None:
        raise MissingPackageError.of("optuna", "tune", "a search for settings")


@contextmanager
def open_study(storage: StudyStorage, settings: Mapping[str, Json], seed: int) -> "Generator[Study]":
    """The study, made if it is not there; its database is closed at the end.

    Args:
        storage: where it is.
        settings: everything that the trials share: bars, features, the recipe that they vary.
        seed: of the values that are drawn.

    Raises:
        MissingPackageError: optuna is not installed.
        ConfigurationError: the storage cannot be opened, or the study there searches something else.
    """
    require_optuna()
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with ExitStack() as ending:
        try:
            database = optuna.storages.RDBStorage(storage.uri)
            ending.callback(_close, database)
            study = optuna.create_study(
                storage=database,
                study_name=storage.name,
                load_if_exists=True,
                direction="minimize",
                pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS, n_warmup_steps=WARMUP_EPOCHS),
            )
        except (SQLAlchemyError, ImportError) as error:  # the second: no driver for such a database is installed
            problem = f"the storage of study {storage.name!r} cannot be opened: {error.args[0]}"
            raise ConfigurationError(problem) from error
        # Another seed after each stop: the same one would draw the same first trials again.
        study.sampler = optuna.samplers.TPESampler(seed=seed + len(study.trials), n_startup_trials=STARTUP_TRIALS)
        _check_same(study, settings)
        yield study


def _close(database: "RDBStorage") -> None:
    """Let go of the file or the server; optuna itself leaves that to the garbage collector."""
    database.remove_session()
    database.engine.dispose()


def _check_same(study: "Study", settings: Mapping[str, Json]) -> None:
    digest = hashlib.sha256(canonical.to_bytes(dict(settings))).hexdigest()
    kept = study.user_attrs.get(SETTINGS)
    if kept is None:
        study.set_user_attr(SETTINGS, digest)
    elif kept != digest:
        raise ConfigurationError(
            f"study {study.study_name!r} searched with other bars, features or settings; choose another --out or "
            "--storage, or remove the old study to start over"
        )
