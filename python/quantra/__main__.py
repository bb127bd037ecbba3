"""`python -m quantra` is the command `quantra`."""

from trainers.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
