"""`python -m bench.reaper REPORT COMMAND…`: runs a contender and reports the exact CPU time of its whole tree.

A PySpark driver may end before the JVM that it started; the JVM would then be handed to init and its CPU time lost.
So this process adopts every orphan below it, waits until the last one has ended, and only then writes the report.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def main() -> int:
    report, command = Path(sys.argv[1]), sys.argv[2:]
    bench = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def end(number: int, _: FrameType | None) -> None:
        """Passed on to the contender; if the bench itself is gone, nothing of the group may outlive it."""
        if os.getppid() != bench:
            os.killpg(0, signal.SIGKILL)
        child.send_signal(number)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    code, ended = 1, time.time()
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            break
        if pid == child.pid:
            code, ended = os.waitstatus_to_exitcode(status), time.time()
            child.returncode = code
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    report.write_text(json.dumps({"code": code, "ended": ended, "cpu": used.ru_utime + used.ru_stime}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
