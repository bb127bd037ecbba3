"""`python -m trainers.cli`: the program `quantra`."""

from trainers.cli import main

main()
