"""A real search server on this machine, for tests: one node of OpenSearch, from the jars of its core.

    with Search() as search:                    # a free port, a temporary folder
        ...                                     # search.url is "http://127.0.0.1:<port>"

It has what a bulk request meets: documents, versions, mappings. Plugins, logins and TLS are not part of it. The program
that OpenSearch is started by refuses to run as root and wants its whole distribution; so its node is built here, in a
JVM that listens to Py4J. It ends with the Python process that started it, however that ends.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Self

from penstock.dev.process import LOOPBACK, Server, free_port
from penstock.errors import SetupError
from penstock.spark.jars import search_jars
from penstock.spark.java import find_java

PATIENCE = 60.0
_HTTP = "org.opensearch.transport.Netty4Plugin"


class Search(Server):
    """Started by `start` or by entering it."""

    def __init__(self, *, heap: str = "384m") -> None:
        super().__init__("search")
        self.port = 0
        self._heap = heap
        self._gateway: Any = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> Self:
        """Returns when it answers. SetupError says why it does not."""
        from py4j.protocol import Py4JError

        for name in ("config", "modules", "plugins"):
            (self.folder / name).mkdir(exist_ok=True)
        (self.folder / "config" / "opensearch.yml").touch()
        self.port = free_port()
        output = self.folder / "search.out"
        classes = os.pathsep.join(map(str, (*search_jars(), _py4j_jar())))
        command = [str(find_java().path), f"-Xmx{self._heap}", "-XX:+UseSerialGC", "-Dlog4j2.disable.jmx=true"]
        self._launch([*command, "-cp", classes, "py4j.GatewayServer", "--enable-auth", "0"], output)
        try:
            self._build(output)
        except (Py4JError, OSError, TimeoutError) as error:
            told = output.read_text(errors="replace") if output.exists() else ""
            self.stop()
            raise SetupError(f"OpenSearch did not start: {str(error)[:400]} {told[-400:]}") from None
        return self

    def stop(self) -> None:
        self._end(0.0)

    def _end(self, patience: float) -> None:
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            gateway.close()
        super()._end(patience)

    def _build(self, output: Path) -> None:
        from py4j.java_gateway import GatewayParameters, JavaGateway

        port, token = self._told(output)
        parameters = GatewayParameters(port=port, auth_token=token)
        gateway = self._gateway = JavaGateway(gateway_parameters=parameters)
        jvm: Any = gateway.jvm
        settings = jvm.org.opensearch.common.settings.Settings.builder()
        for name, value in self._settings().items():
            settings.put(name, value)
        jvm.org.opensearch.common.logging.LogConfigurator.setNodeName("penstock")
        place = jvm.java.nio.file.Paths.get(str(self.folder / "config"), gateway.new_array(jvm.java.lang.String, 0))
        environment = jvm.org.opensearch.env.Environment(settings.build(), place)
        plugins = jvm.java.util.ArrayList()
        plugins.add(jvm.java.lang.Class.forName(_HTTP))
        # The constructor that takes classes of plugins instead of folders is not public.
        node = jvm.java.lang.Class.forName("org.opensearch.node.Node")
        build = next(one for one in node.getDeclaredConstructors() if one.getParameterCount() == 3)
        build.setAccessible(True)
        given = gateway.new_array(jvm.java.lang.Object, 3)
        given[0], given[1], given[2] = environment, plugins, False
        build.newInstance(given).start()

    def _settings(self) -> dict[str, str]:
        return {
            "path.home": str(self.folder),
            "path.data": str(self.folder / "data"),
            "http.port": str(self.port),
            "http.host": LOOPBACK,
            "transport.host": LOOPBACK,
            "transport.port": str(free_port()),
            "transport.type": "netty4",
            "http.type": "netty4",
            "discovery.type": "single-node",
            "cluster.name": "penstock",
            "node.name": "penstock",
            "node.processors": "1",
            "cluster.routing.allocation.disk.threshold_enabled": "false",
        }

    def _told(self, output: Path) -> tuple[int, str]:
        """The port and the token that the JVM prints first."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self._child is not None and self._child.exit_code() is None:
            lines = output.read_text(errors="replace").splitlines() if output.exists() else []
            if len(lines) >= 2 and lines[0].isdigit():
                return int(lines[0]), lines[1].strip()
            time.sleep(0.05)
        raise TimeoutError("its JVM did not answer")


def _py4j_jar() -> Path:
    import pyspark

    return next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar"))
