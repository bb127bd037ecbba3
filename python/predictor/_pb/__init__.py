"""Generated from protos/quantra/v1 and protos/inference by `make protos`; never edited."""
