"""An index of Elasticsearch or OpenSearch, written by bulk requests.

The id of a document is the key of its row, its version that of the commit: documents that are sent again, or too late,
change nothing, because the index itself refuses an older version."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import TableChanged, Terminal, Transient, import_extra
from penstock.sinks.base import DELETED, REJECTION, UNAVAILABLE_HINT, Refused, SendResult
from penstock.sources.columns import VERSION

if TYPE_CHECKING:
    import httpx
    from pyspark.sql import DataFrame

    from penstock.ledger.entry import Entry
    from penstock.plan.targets import SearchTarget
    from penstock.sinks.base import Shape


_BYTES, _ACTIONS = 5 << 20, 5000
"""Limits of one request."""
_LONGEST_ID = 512
_MOST_REFUSED = 10_000
_TRANSIENT_STATUSES = (429, 500, 502, 503, 504)
_NEWER = re.compile(r"current version \[(\d+)\]")


@dataclass(frozen=True)
class _Action:
    id: str
    version: int
    document: str | None
    """None: the document is deleted."""

    @property
    def has_good_id(self) -> bool:
        return 0 < len(self.id.encode()) <= _LONGEST_ID

    def lines(self) -> bytes:
        metadata = {"_id": self.id, "version": self.version, "version_type": "external_gte"}
        name = "delete" if self.document is None else "index"
        document = "" if self.document is None else f"{self.document}\n"
        return f"{json.dumps({name: metadata}, ensure_ascii=False)}\n{document}".encode()


class SearchIndex:
    def __init__(self, sink: str, plan: SearchTarget, shape: Shape, newest: Callable[[], int]) -> None:
        """`newest` returns the newest version of the table that is followed."""
        self._sink, self._plan, self._shape, self._newest = sink, plan, shape, newest

    def ready(self, last: Entry) -> None:
        with self._client() as client:
            response = client.head(f"/{self._plan.index}")
            if response.status_code not in (200, 404):
                self._raise_error(response)

    def send(self, changes: DataFrame, entry: Entry) -> SendResult:
        document = f"IF({DELETED}, NULL, {self._shape.value})"
        rows = changes.selectExpr(f"{self._shape.key} AS id", VERSION, f"{document} AS document", REJECTION)
        sent = aside = 0
        refused: list[Refused] = []
        with self._client() as client:
            for actions, left_out in _chunks(rows):
                refused += [_bad_id(action) for action in actions if not action.has_good_id]
                refused += self._bulk(client, [action for action in actions if action.has_good_id])
                sent, aside = sent + len(actions), aside + left_out
                if len(refused) > _MOST_REFUSED:
                    raise Terminal(
                        f"the index refuses more than {_MOST_REFUSED:,} documents of one batch: {refused[-1].detail}",
                        where=self._sink,
                        hint="that is no longer a bad row or two: mend the mapping of the index, or choose `columns`",
                    )
        return SendResult(sent - len(refused), aside, refused)

    def _bulk(self, client: httpx.Client, actions: Sequence[_Action]) -> list[Refused]:
        if not actions:
            return []
        body = b"".join(action.lines() for action in actions)
        response = client.post(
            f"/{self._plan.index}/_bulk", content=body, headers={"Content-Type": "application/x-ndjson"}
        )
        if response.status_code == 413:
            if len(actions) == 1:
                return [Refused(actions[0].id, "refused", f"the server takes no document of {len(body):,} bytes")]
            half = len(actions) // 2
            return self._bulk(client, actions[:half]) + self._bulk(client, actions[half:])
        if response.status_code != 200:
            self._raise_error(response)
        items = [next(iter(item.items())) for item in response.json()["items"]]
        outcomes = (self._classify(action, name, item) for action, (name, item) in zip(actions, items, strict=True))
        return [refusal for refusal in outcomes if refusal is not None]

    def _classify(self, action: _Action, name: str, item: dict[str, Any]) -> Refused | None:
        status, error = int(item["status"]), item.get("error") or {}
        if status < 300 or (status == 404 and not error):  # a delete of a missing document
            return None
        kind, message = str(error.get("type", "")), _error_text(error)
        if status == 409:
            self._refuse_newer(action, message)
            return None
        if status in _TRANSIENT_STATUSES or kind in ("cluster_block_exception", "es_rejected_execution_exception"):
            raise Transient(f"the index does not serve: {message}", where=self._sink)
        if status in (401, 403, 404):
            raise Terminal(
                f"the index refuses: {message}", where=self._sink, hint="make it, and let the sink write to it"
            )
        return Refused(action.id, "refused", message)

    def _refuse_newer(self, action: _Action, message: str) -> None:
        """The index has a newer version: a later one of the table, or one that this table never had."""
        current = _NEWER.search(message)
        if current is not None and int(current[1]) > (newest := self._newest()):
            raise TableChanged(
                f"document {action.id} of {self._plan.name} has version {current[1]}, and the table is at "
                f"version {newest}: the table was rebuilt, or something else writes to the index",
                where=self._sink,
                hint="send to another index, or delete this one; then "
                f"`penstock checkpoints reset {self._sink} --to earliest`",
            )

    def _raise_error(self, response: httpx.Response) -> None:
        status, text = response.status_code, " ".join(response.text.split())[:400]
        if status in _TRANSIENT_STATUSES:
            raise Transient(
                f"the search server does not serve: {status} {text}", where=self._sink, hint=UNAVAILABLE_HINT
            )
        hint = "check `user` and `password`, or `api_key`" if status in (401, 403) else "correct it there, or in `to`"
        raise Terminal(f"the search server refuses: {status} {text}", where=self._sink, hint=hint)

    @contextmanager
    def _client(self) -> Iterator[httpx.Client]:
        httpx = import_extra("httpx", "search", "a sink to a search server")
        plan = self._plan
        login = (plan.user or "", plan.password.get_secret_value()) if plan.password is not None else None
        headers = {"Authorization": f"ApiKey {plan.api_key.get_secret_value()}"} if plan.api_key is not None else {}
        try:
            with httpx.Client(
                base_url=plan.url, auth=login, headers=headers, timeout=httpx.Timeout(120, connect=10)
            ) as client:
                yield client
        except httpx.TransportError as error:
            if "CERTIFICATE" in str(error):
                hint = "name its authority by the variable SSL_CERT_FILE"
                raise Terminal(f"{plan.url} is not trusted: {error}", where=self._sink, hint=hint) from None
            raise Transient(f"{plan.url} does not answer: {error or type(error).__name__}", where=self._sink) from None


def _chunks(rows: DataFrame) -> Iterator[tuple[list[_Action], int]]:
    actions: list[_Action] = []
    size = aside = 0
    for key, version, document, left_out in rows.toLocalIterator(prefetchPartitions=True):
        if left_out is not None:
            aside += 1
            continue
        actions.append(_Action(key, version, document))
        size += len(document or "") + 100
        if len(actions) == _ACTIONS or size > _BYTES:
            yield actions, aside
            actions, size, aside = [], 0, 0
    yield actions, aside


def _bad_id(action: _Action) -> Refused:
    size = len(action.id.encode())
    return Refused(action.id, "refused", f"the key has {size:,} bytes; an id of the index has 1 to {_LONGEST_ID}")


def _error_text(error: dict[str, Any]) -> str:
    parts: list[str] = []
    while error and len(parts) < 4:
        parts.append(f"{error.get('type')}: {error.get('reason')}")
        error = error.get("caused_by") or {}
    return "; ".join(parts)[:2000]
