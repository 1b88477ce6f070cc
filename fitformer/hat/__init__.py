"""Reads what the original HAT code made: configurations, checkpoints, latency data sets and latency predictors."""
