"""Realistic events from a seed, and sending them to Kafka. Nothing here depends on the command line."""

from __future__ import annotations

from penstock.dev.generate.event import Event
from penstock.dev.generate.producer import EventTopic, ProducedEvents, ensure_topic, produce
from penstock.dev.generate.stream import KINDS, PACE, Faults, events, find_kind

__all__ = [
    "KINDS",
    "PACE",
    "Event",
    "EventTopic",
    "Faults",
    "ProducedEvents",
    "ensure_topic",
    "events",
    "find_kind",
    "produce",
]
