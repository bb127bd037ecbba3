"""`python holding_process.py FOLDER` locks a checkpoint folder, and starts a child that does not, until killed.

It prints "held" once it has the lock. Both processes wait for the end of their standard input.
"""

import os
import sys
from pathlib import Path

from trainers.loop.checkpoint.store import Checkpoints

if __name__ == "__main__":
    with Checkpoints(Path(sys.argv[1])).open():
        if os.fork():
            sys.stdout.write("held\n")
            sys.stdout.flush()
        sys.stdin.read()
