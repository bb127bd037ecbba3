"""`python -m predictor.cli`: the predictor's commands without the trainers'."""

from predictor.cli import main

if __name__ == "__main__":
    main()
