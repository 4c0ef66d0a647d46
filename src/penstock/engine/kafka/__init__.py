"""Kafka as a source: client properties, what the broker knows, what Spark is told."""
