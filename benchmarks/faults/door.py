"""The doors through which the same faults come: which connection callers have, and which protocol they speak."""

from dataclasses import dataclass
from typing import Final, Self, final

from benchmarks.faults.kserve import KServe
from benchmarks.faults.models import Material
from benchmarks.faults.speech import Native, Speech
from benchmarks.faults.target import Secured

PLAIN, TLS, KSERVE = "plain", "tls", "kserve"
NAMES: Final = (PLAIN, TLS, KSERVE)
_SAID: Final = {PLAIN: "", TLS: ", TLS and token", KSERVE: ", KServe"}


@final
@dataclass(frozen=True, slots=True)
class Door:
    """One door.

    Attributes:
        name: One of `NAMES`.
        speech: How forecasts are asked for.
        secured: What the server reads and callers show; None: nothing is encrypted.
    """

    name: str
    speech: Speech
    secured: Secured | None = None

    @classmethod
    def of(cls, name: str, material: Material) -> Self:
        """The door of this name, with the certificates of the material."""
        speech = KServe() if name == KSERVE else Native()
        return cls(name, speech, Secured(material.certificates) if name == TLS else None)

    @property
    def is_plain(self) -> bool:
        """Whether it is the one that all faults come through."""
        return self.name == PLAIN

    @property
    def explains(self) -> bool:
        """Whether its protocol has explanations."""
        return self.name != KSERVE

    @property
    def said(self) -> str:
        """Behind the name of a fault; empty for the plain one."""
        return _SAID[self.name]
