"""The production checklist, told from evidence.

Evidence, each read once:  seen (a table's own files: lately, times, layout, upstream, quarantine), cluster and backlog
(brokers), machine. Checks, pure functions over it:  location, checkpoints, topics, kafka_retention, delta_retention,
pace, files, rejected, symptoms, security, secrets, versions, room, clock. `examine` brings both together.
"""
