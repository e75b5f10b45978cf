"""Counters, metrics and the description of the environment."""
