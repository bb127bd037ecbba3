"""Generated from protos/quantra/v1/prediction.proto by `make protos`; never edited."""
