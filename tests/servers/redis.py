"""A real Redis on this machine, for development and tests.

    with Redis() as redis:                      # a free port, nothing on disk
        ...                                     # redis.url is "redis://127.0.0.1:<port>/0"

It ends with the Python process that started it, however that ends.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from penstock.dev.process import LOOPBACK, Child, Server, free_port
from penstock.errors import SetupError
from penstock.spark.java import apt_get, may_install

if TYPE_CHECKING:
    import redis


PATIENCE = 30.0
_INSTALL = "install it: apt-get install -y redis-server (Debian, Ubuntu), brew install redis (macOS)"


class Redis(Server):
    """Started by `start` or by entering it. After `stop` it can be started again: same port, and empty."""

    def __init__(self, *settings: str) -> None:
        """`settings` are words of its command line: "--requirepass", "secret"."""
        super().__init__("redis")
        self.port = 0
        self._settings: Sequence[str] = settings

    @property
    def url(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}/0"

    def connect(self, **login: Any) -> redis.Redis:
        import redis

        return redis.Redis(host=LOOPBACK, port=self.port, **login)

    def start(self) -> Self:
        """Returns when it answers. SetupError says why it does not."""
        program = _ensure_program()
        for _ in range(3):
            self.port = self.port or free_port()
            words = ["--bind", LOOPBACK, "--port", str(self.port), "--save", "", "--dir", str(self.folder)]
            output = self.folder / "redis.log"
            output.unlink(missing_ok=True)
            if self._answers(self._launch([program, *words, *self._settings], output)):
                return self
            self.port = 0 if "in use" in output.read_text(errors="replace") else self.port
        raise SetupError(f"Redis did not start: {output.read_text(errors='replace')[-300:]}", hint=_INSTALL)

    def stop(self) -> None:
        """As a crash would: what it held is gone."""
        self._end(0.0)

    def _answers(self, child: Child) -> bool:
        import redis

        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and child.exit_code() is None:
            try:
                with self.connect(socket_timeout=1.0) as client:
                    client.ping()
                return True
            except redis.AuthenticationError:
                return True
            except redis.RedisError:
                time.sleep(0.05)
        return False


def _ensure_program() -> str:
    found = shutil.which("redis-server")
    if found is None and may_install():
        print("Redis is missing: installing it with apt-get (about 2 MB)", file=sys.stderr, flush=True)
        apt_get("update", hint=_INSTALL)
        apt_get("install", "-y", "--no-install-recommends", "redis-server", hint=_INSTALL)
        found = shutil.which("redis-server")
    if found is None:
        raise SetupError("Redis was not found: no redis-server on the PATH", hint=_INSTALL)
    return found
