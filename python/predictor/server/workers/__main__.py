"""`python -m predictor.server.workers DESCRIPTOR`: the program of a worker process."""

import sys

from predictor.server.workers.worker import work

if __name__ == "__main__":
    work(int(sys.argv[1]))
