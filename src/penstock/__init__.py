"""Kafka topics landed in Delta Lake exactly once, replayable, watched and provable."""

__version__ = "0.1.0"
