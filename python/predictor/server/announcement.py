"""The one line on standard output by which others learn that a server answers, and where."""

import json
import os
import sys
from importlib.metadata import version

from predictor.server.host import Ports


def announce(ports: Ports) -> None:
    """Say so."""
    line = {"ready": True, **ports.told(), "pid": os.getpid(), "version": version("quantra")}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
