"""Makes lake.tar.xz: the lake of the compatibility project and its broker's data, as this version writes them.

    python -m tests.compatibility.make_lake

It is kept for the next version, which must continue it; so it is made again only when a release is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from penstock.dev.broker import Broker
from tests.compatibility.feed import PARTITIONS, feed

HERE = Path(__file__).parent
ARCHIVE = HERE / "lake.tar.xz"


def penstock(folder: Path, bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in the project folder."""
    return subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        cwd=folder,
        env={**os.environ, "COMPAT_KAFKA": bootstrap},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def unpack(folder: Path) -> Path:
    """The lake, and the project that made it; the broker's data lies beside. Returns the folder of the project."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return Path(shutil.copytree(HERE / "project", folder / "project", dirs_exist_ok=True))


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        project = root / "project"
        shutil.copytree(HERE / "project", project)
        with Broker(data_dir=root / "broker") as broker:
            for topic in ("orders", "orders_out", "current_out"):
                broker.create_topic(topic, PARTITIONS)
            for round_ in (0, 1):
                feed(broker.bootstrap, project, round_)
                done = penstock(project, broker.bootstrap, "run", "--once")
                print(done.stdout, done.stderr)
                if done.returncode:
                    sys.exit(done.returncode)
            broker.stop()
        with tarfile.open(ARCHIVE, "w:xz") as archive:
            for name in ("project/lake", "project/in", "broker/log"):
                archive.add(root / name, name, filter=_kept)
    print(f"{ARCHIVE.name}: {ARCHIVE.stat().st_size} bytes")


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without owners, and without what a broker makes again: indexes, which are large and mostly empty."""
    if member.name.endswith((".index", ".timeindex")):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
