"""`python holding_process.py FOLDER` holds the folder of checkpoints, and so does not its child, until they are killed.

Says "held" when it does; both wait for the end of their standard input.
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
