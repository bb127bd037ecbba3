"""Forecasts of a universe as of many days, as Parquet files by day."""
