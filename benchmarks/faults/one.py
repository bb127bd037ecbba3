"""One fault in a process of its own: `python -m benchmarks.faults.one NAME MATERIAL WORK [--door NAME] [--quick]`.

Prints its findings as lines of JSON, each as soon as it is there.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.faults import (
    abandoned,
    beside,
    burst,
    checkpoints,
    damaged,
    deadlines,
    draining,
    forged,
    gone,
    inputs,
    mutated,
    orphans,
    reloads,
    restarts,
    rotation,
    shortage,
    sizes,
    soak,
    stopping,
    told,
    workers,
)
from benchmarks.faults.door import NAMES, PLAIN, Door
from benchmarks.faults.fault import Fault, Place
from benchmarks.faults.models import Material

FAULTS: Final[Mapping[str, Fault]] = {
    "mutated": mutated.run,
    "burst": burst.run,
    "sizes": sizes.run,
    "beside": beside.run,
    "deadlines": deadlines.run,
    "gone": gone.run,
    "stopping": stopping.run,
    "draining": draining.run,
    "abandoned": abandoned.run,
    "reloads": reloads.run,
    "rotation": rotation.run,
    "inputs": inputs.run,
    "shortage": shortage.run,
    "artifacts": damaged.run,
    "forged": forged.run,
    "checkpoints": checkpoints.run,
    "soak": soak.run,
    "logs": told.run,
    "workers": workers.run,
    "orphans": orphans.run,
    "restarts": restarts.run,
}
"""Every fault by its name, in the order in which they are run."""
DOORED: Final = frozenset({"mutated", "burst", "sizes", "beside", "deadlines", "gone", "stopping", "reloads"})
"""Those that come through every door; the others have a way of their own."""
ALONE: Final = frozenset({"deadlines"})
"""Those that tell from times what happened: nothing may run beside them, and they come last."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=FAULTS)
    parser.add_argument("material", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--door", choices=NAMES, default=PLAIN)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    material = Material(given.material)
    door = Door.of(given.door, material)
    for finding in FAULTS[given.name](Place(material, given.work, given.quick, door)):
        print(replace(finding, fault=f"{finding.fault}{door.said}").to_line(), flush=True)


if __name__ == "__main__":
    main()
