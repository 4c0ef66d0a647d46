"""A database table as a target: rows and the position in one transaction, so that each change is there exactly once.

The rows go from Spark to the driver of the database within the JVM (jar_data/java/penstock/jdbc)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark.sql import types as T

from penstock.errors import Terminal, Transient
from penstock.plan.targets import POSTGRES
from penstock.sinks.base import (
    DELETED,
    REJECTION,
    UNAVAILABLE_HINT,
    Refused,
    SendResult,
    already_there,
    as_json,
    dump_position,
    is_nested,
    parse_position,
    refuse_unexpected_position,
)
from penstock.spark.jars import postgres_jars
from penstock.spark.jvm import gateway_of, java_frame, jvm_of
from penstock.spark.sql_text import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.errors import PenstockError
    from penstock.ledger.entry import Entry
    from penstock.plan.targets import JdbcTarget
    from penstock.sinks.base import Shape

_DEFAULTS = {
    POSTGRES: {
        "stringtype": "unspecified",  # text goes into columns of uuid, jsonb and their like
        "reWriteBatchedInserts": "true",
        "connectTimeout": "10",
        "socketTimeout": "600",
        "tcpKeepAlive": "true",
    },
    "jdbc:mysql:": {"rewriteBatchedStatements": "true", "connectTimeout": "10000"},
    "jdbc:mariadb:": {"connectTimeout": "10000"},
}
_TRANSIENT_STATES = ("08", "25", "40", "53", "55", "57", "HYT0")
"""Connection, read-only (a standby), deadlock, resources, locks, shutdown: SQLStates of temporary failures."""
_PLAIN_TYPES: Mapping[type[T.DataType], tuple[str, str]] = {
    T.StringType: ("text", "{}"),
    T.ByteType: ("int", "CAST({} AS INT)"),
    T.ShortType: ("int", "CAST({} AS INT)"),
    T.IntegerType: ("int", "{}"),
    T.LongType: ("long", "{}"),
    T.FloatType: ("float", "{}"),
    T.DoubleType: ("double", "{}"),
    T.DecimalType: ("decimal", "{}"),
    T.BooleanType: ("boolean", "{}"),
    T.BinaryType: ("binary", "{}"),
    T.DateType: ("date", "unix_date({})"),
    T.TimestampType: ("timestamp", "unix_micros({})"),
    T.TimestampNTZType: ("local", "CAST({} AS STRING)"),
}


class JdbcTable:
    def __init__(self, spark: SparkSession, sink: str, plan: JdbcTarget, shape: Shape) -> None:
        self._jvm, self._gateway = jvm_of(spark), gateway_of(spark)
        self._sink, self._plan, self._shape = sink, plan, shape
        missing = [field for field in shape.keys if field not in shape.columns]
        self._fields = (*missing, *shape.columns)
        self._columns = self._jvm.java.util.ArrayList()
        for field in self._fields:
            kind, key = field.dataType, field.name in shape.key_names
            precision, scale = (kind.precision, kind.scale) if isinstance(kind, T.DecimalType) else (0, 0)
            self._columns.add(self._jvm.penstock.jdbc.Column(field.name, _mapping(kind)[0], precision, scale, key))
        self._names: Any = None

    def ready(self, last: Entry) -> None:
        with self._session() as session:
            self._names = session.settle(self._columns, self._plan.create)
            refuse_unexpected_position(parse_position(list(session.lock())), last, self._plan.name)
            session.commit()

    def send(self, changes: DataFrame, entry: Entry) -> SendResult:
        rows = changes.selectExpr(
            *(
                _mapping(field.dataType)[1].format(quote(field.name)) + f" AS {quote(field.name)}"
                for field in self._fields
            ),
            f"{self._shape.key} AS __key",
            DELETED,
            REJECTION,
        )
        with self._session() as session:
            position = parse_position(list(session.lock()))
            if position is not None and already_there(position, entry, self._plan.name):
                return SendResult(position.changes, None, _refused_rows(session.refused()))
            refused = _refused_rows(session.apply(java_frame(rows), self._columns, self._names))
            before, after = dump_position(entry.before), dump_position(entry.after)
            session.move(entry.ledger, entry.generation, entry.batch, before, after)
            session.commit()
            return SendResult(int(session.written()), int(session.aside()), refused)

    @contextmanager
    def _session(self) -> Iterator[Any]:
        """A session that rolls back whatever was not committed. Errors of the database are raised as Penstock's."""
        plan = self._plan
        properties = self._jvm.java.util.Properties()
        for name, value in self._properties().items():
            properties.setProperty(name, value)
        jars = self._jvm.java.util.ArrayList()
        for jar in postgres_jars() if plan.url.startswith(POSTGRES) else ():
            jars.add(str(jar))
        session: Any = None
        try:
            session = self._jvm.penstock.jdbc.Session.open(jars, plan.url, properties, self._sink, plan.table)
            yield session
        except Py4JJavaError as error:
            if penstock_error := self._explain(error.java_exception):
                raise penstock_error from None
            raise
        finally:
            if session is not None:
                with suppress(Py4JJavaError):
                    session.close()

    def _properties(self) -> dict[str, str]:
        plan = self._plan
        defaults = next((options for prefix, options in _DEFAULTS.items() if plan.url.startswith(prefix)), {})
        login = {"user": plan.user} if plan.user is not None else {}
        if plan.password is not None:
            login["password"] = plan.password.get_secret_value()
        return {**defaults, **plan.options, **login}

    def _explain(self, java: Any) -> PenstockError | None:
        if is_instance_of(self._gateway, java, "penstock.jdbc.Failure"):
            return Terminal(str(java.getMessage()), where=self._sink, hint=str(java.hint()))
        if not is_instance_of(self._gateway, java, "java.sql.SQLException"):
            return None
        state, message = str(java.getSQLState() or ""), " ".join(str(java.getMessage()).split())[:600]
        if "No suitable driver" in message:
            hint = "name the jar of its driver: spark: {jars: [jars/driver.jar]}"
            return Terminal(f"there is no driver for {self._plan.url}", where=self._sink, hint=hint)
        transient_classes = ("java.sql.SQLTransientException", "java.sql.SQLRecoverableException")
        if state.startswith(_TRANSIENT_STATES) or any(
            is_instance_of(self._gateway, java, name) for name in transient_classes
        ):
            return Transient(
                f"the database does not serve: {message} ({state})", where=self._sink, hint=UNAVAILABLE_HINT
            )
        if not state:
            return None
        hints = {
            "28": "check `user` and `password`",
            "3D": f"make the database, or correct its name in {self._plan.url}",
            "42501": "let the user of the sink do that: it writes the table, and makes penstock_positions and "
            "penstock_refused beside it",
        }
        hint = next(
            (text for prefix, text in hints.items() if state.startswith(prefix)), "correct it there, or in `to`"
        )
        return Terminal(f"the database refuses: {message} ({state})", where=self._sink, hint=hint)


def _mapping(kind: T.DataType) -> tuple[str, str]:
    """The type's name in penstock.jdbc.Column, and the expression of a value. Types without an equivalent there go as
    text."""
    if is_nested(kind):
        return "json", as_json("{}")
    return _PLAIN_TYPES.get(type(kind), ("text", "CAST({} AS STRING)"))


def _refused_rows(rows: Any) -> list[Refused]:
    return [
        Refused(str(row[0]), "refused", f"{row[2]} ({row[1]})" if row[1] is not None else str(row[2])) for row in rows
    ]
