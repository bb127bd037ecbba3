"""`python -m predictor.server.workers DESCRIPTOR`: one worker, as its supervisor starts it."""

import sys

from predictor.server.workers.worker import work

if __name__ == "__main__":
    work(int(sys.argv[1]))
