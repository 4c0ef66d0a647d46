"""Contender d: consume and discard. Nothing that reads through one consumer can be faster."""

from __future__ import annotations

import sys

from bench.jobs.assigned import Assigned
from bench.jobs.job import JobFile, now


def main() -> None:
    job = JobFile.read(sys.argv[1])
    consumer = Assigned(job.bootstrap, job.topic, far_ahead=True)
    first, rows = now(), 0
    job.mark(first=first)
    while consumer.left:
        rows += len(consumer.take(job.per_batch))
    job.mark(first=first, last=now(), rows=rows)
    consumer.close()


if __name__ == "__main__":
    main()
