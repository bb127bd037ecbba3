"""The one line on standard output by which others learn that a server answers, and where."""

import json
import os
import sys
from importlib.metadata import version

from predictor.server.host import Ports


def announce(ports: Ports) -> None:
    """Say so."""
    line = {"ready": True, "port": ports.calls, "pid": os.getpid(), "version": version("quantra")}
    admin = {} if ports.admin is None else {"admin_port": ports.admin}
    sys.stdout.write(json.dumps({**line, **admin}) + "\n")
    sys.stdout.flush()
