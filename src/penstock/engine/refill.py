"""The rows of a table that is made anew: written first, and put in the place of all that it holds by one commit, later.

Python's side of jar_data/java/penstock/delta/Refill.java.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.engine.protocol.commit import carrying
from penstock.engine.protocol.entry import Entry


class Refill:
    anew, lazy = True, False

    def __init__(self, session: SparkSession, uri: str, *, idempotent: bool, kept: DataFrame | None = None) -> None:
        """`kept`: rows of the table that stay as they are. The session is used by nobody else: what goes with its
        commits is of this one."""
        self.uri, self.idempotent = uri, idempotent
        self._session, self._kept = session, kept
        self._schema: StructType | None = None
        self._begun: Any = None
        self.entry: Entry | None = None
        """As the function gave it: a merge adds to it what it counted."""

    @property
    def _inner(self) -> Any:
        """Begun with the first rows: until then a table of files may still get columns that its files bring."""
        if self._begun is None:
            jvm = self._session.sparkContext._jvm
            assert jvm is not None
            self._begun = jvm.penstock.delta.Refill.begin(self._session._jsparkSession, self.uri)
            if self._schema is not None:
                self._begun.columns(self._schema.json())
        return self._begun

    def there(self, session: SparkSession) -> DataFrame | None:
        return self._kept

    def append(self, rows: DataFrame, entry: Entry) -> None:
        self._inner.write(rows._jdf)
        self.entry = entry

    overwrite = append

    def repin(self, entry: Entry) -> None:
        self.entry = entry

    @property
    def rows(self) -> int:
        """Written so far."""
        return int(self._inner.rows())

    def columns(self, schema: StructType) -> None:
        """Those that the table shall have; before anything is written."""
        self._schema = schema

    def keep(self) -> int:
        """Writes the rows that stay; how many those are."""
        if self._kept is None:
            return 0
        before = self.rows
        self._inner.write(self._kept._jdf)
        return self.rows - before

    def commit(self, entry: Entry) -> None:
        with carrying(self._session, entry, idempotent=self.idempotent):
            self._inner.commit()
