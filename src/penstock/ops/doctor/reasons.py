"""Every check by its id, in the order in which they are made, and why it matters. docs/doctor.md has them all."""

from __future__ import annotations

from collections.abc import Mapping

REASONS: Mapping[str, str] = {
    "lake.durable": "the lake holds the tables, their ledgers and their checkpoints: what takes it takes them all",
    "lake.locks": "on a local lake two writers are kept apart by POSIX locks, which not every file system has",
    "lake.readable": "without the lake nothing is known about the tables",
    "lake.leftovers": "what nobody uses takes room, and shows that another project uses the same lake",
    "disk.room": "a full disk stops every table, and Spark's temporary files with it",
    "memory.driver": "a JVM that grows beyond the memory there is gets killed by the kernel, in the midst of a batch",
    "versions.packages": "other versions of Spark and Delta than the pinned ones have other faults",
    "versions.jars": "jars that are not the listed ones are other programs",
    "versions.java": "Spark runs on it",
    "secrets.plain": "who may read the project file, or any copy of it, has the secret",
    "secrets.files": "who can read the file of a key or a password has it; who can change a project runs code",
    "kafka.secure": "who listens on the way reads the records, and a password that is sent in clear",
    "targets.secure": "who listens on the way reads the rows, and a password that is sent in clear",
    "kafka.answers": "without a broker nothing is landed, and what it keeps meanwhile ages",
    "kafka.consumers": "consumers beyond the cache are opened anew in every batch",
    "clock.skew": "times of batches, retention and windows of time go by the clocks of this machine and of Kafka",
    "table.state": "a table that does not run lands nothing",
    "table.checkpoint": "each stream has a checkpoint of its own, which says what its ledger says",
    "table.foreign": "what others write is in no ledger: rows may be doubled or gone, and `verify` finds them",
    "kafka.topics": "what a table reads has to be there, and has to be what it was when it was read last",
    "kafka.retention": "Kafka deletes what is too old, whether it was read or not",
    "kafka.compaction": "of the records with one key compaction leaves the newest, whether the others were read or not",
    "kafka.partitions": "a partition is read by one task at a time",
    "delta.retention": "the log and the replaced files of a table go after a time, whether they were read or not",
    "table.silent": "a table into which nothing comes looks like one where all is well",
    "pace.batches": "batches that take longer than the trigger run back to back, and there is no reserve left",
    "pace.sla": "that is how old data may be",
    "pace.behind": "a table that falls behind reaches the end of retention sooner or later",
    "table.files": "every query opens every file: many small ones cost more time than their rows",
    "table.log": "whoever opens the table reads all commits since Delta's last checkpoint",
    "quarantine.share": "rejected rows are kept, but nobody's query sees them",
    "schema.rescued": "fields that the schema does not name are kept as JSON, and are in no column",
}
