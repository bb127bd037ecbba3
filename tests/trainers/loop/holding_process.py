"""`python holding_process.py FOLDER` locks a checkpoint folder, and starts a child that does not, until killed.

The child prints "held" once it has closed its copy of the lock. Both wait for the end of their standard input.
"""

import os
import sys
from pathlib import Path

from trainers.loop.checkpoint.store import Checkpoints

if __name__ == "__main__":
    with Checkpoints(Path(sys.argv[1])).open():
        if not os.fork():
            sys.stdout.write("held\n")
            sys.stdout.flush()
        sys.stdin.read()
