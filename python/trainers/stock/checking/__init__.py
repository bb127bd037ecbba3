"""Templates of the page that `quantra check --plot` writes."""
