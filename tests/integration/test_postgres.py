"""The development PostgreSQL: real, private, and gone afterwards."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from penstock.dev.postgres import Postgres
from penstock.dev.process import identity


def test_a_server_keeps_its_data_over_a_stop_and_a_kill_and_leaves_nothing() -> None:
    with Postgres() as server:
        server.execute("CREATE TABLE t (id int PRIMARY KEY, name text); INSERT INTO t VALUES (1, 'ä 100%')")
        port = server.port
        server.kill()
        server.start()
        assert server.port == port
        assert server.execute("SELECT * FROM t WHERE name = %s", "ä 100%") == [(1, "ä 100%")]
        server.stop()
        assert not server.running
        server.start()
        assert server.execute("SHOW wal_level") == [("logical",)]
        assert server.execute("DELETE FROM t") == []
        server.create_database("other")
        assert server.execute("SELECT current_database()", database="other") == [("other",)]
        assert server.url_of("other") == f"jdbc:postgresql://127.0.0.1:{port}/other"
        folder = server.folder
    assert not folder.exists()


def test_a_server_ends_with_the_process_that_started_it() -> None:
    program = (
        "from penstock.dev.postgres import Postgres; import os, signal\n"
        "server = Postgres().start()\n"
        "print(server._child.pid, server.folder, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    pid, folder = done.stdout.split()
    until = time.monotonic() + 20
    while time.monotonic() < until and (identity(int(pid)) or Path(folder).exists()):
        time.sleep(0.1)
    assert identity(int(pid)) is None
    assert not Path(folder).exists()
