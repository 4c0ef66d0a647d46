"""The suppression list: the orders to forget people, as keyed hashes. No names are stored."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import Terminal, Transient, UsageError

if TYPE_CHECKING:
    from penstock.plan.subjects import ForgetPlan
    from penstock.storage.stores import Store

FORMAT = 1
_LARGEST_EXPONENT = 400
"""Numbers with a larger exponent are not written out but stay as they are, or one record could fill the memory."""


@dataclass(frozen=True)
class ForgetOrder:
    """An order to forget a person, identified by a keyed hash."""

    subject: str
    """The kind of name as the project calls it, for example customer."""
    hash: str
    length: int
    """The length of the name in UTF-16 units: if a record is not JSON, only words of that length are compared."""
    time_ms: int
    key: str
    """Fingerprint of the key that the hash was made with."""

    @property
    def id(self) -> str:
        return f"{self.subject}-{self.hash[:20]}"


def canonical(value: object) -> str:
    """The same text for a subject whatever its type: text unchanged, numbers in plain form."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal):
        return _plain_number(Decimal(str(value)))
    return str(value)


def _plain_number(number: Decimal) -> str:
    """The number in plain form: 42, 42.0 and 4.2E1 give the same text."""
    if not number.is_finite():
        return str(number)
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if not any(digits):
        return "0"
    if abs(exponent) > _LARGEST_EXPONENT:
        return str(number)
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def subject_hash(key: bytes, subject: str, value: object) -> str:
    return hmac.new(key, f"{subject}={canonical(value)}".encode(), hashlib.sha256).hexdigest()


def fingerprint(key: bytes) -> str:
    """Identifies a key without revealing it."""
    return hmac.new(key, b"penstock forget", hashlib.sha256).hexdigest()[:16]


def order_of(key: bytes, subject: str, value: object, time_ms: int) -> ForgetOrder:
    length = len(canonical(value).encode("utf-16-le")) // 2
    return ForgetOrder(subject, subject_hash(key, subject, value), length, time_ms, fingerprint(key))


def dump(order: ForgetOrder) -> str:
    return json.dumps({"penstock": FORMAT, **asdict(order)})


def parse(text: str) -> ForgetOrder | None:
    """The order in a document; None if the document is incomplete and so was never an order."""
    try:
        document: Any = json.loads(text)
        if not isinstance(document, dict) or document.pop("penstock", None) != FORMAT:
            return None
        return ForgetOrder(**document)
    except (ValueError, TypeError):
        return None


# The suppression list: all orders to forget people. It only ever grows, and every table reads it.
#
# There is one document per order, in the lake's system folder. The key of their hashes is the project's, or is stored
# beside them, created with the first order. Without it the orders identify nobody, so its loss is an error.


_KEY_BYTES = 32
_DOCUMENT = ".json"


class SuppressionList:
    """Read in every batch, at the cost of one folder listing: only new documents are read."""

    def __init__(self, plan: ForgetPlan, store: Store) -> None:
        self._plan, self._store = plan, store
        self._folder = f"{plan.folder}/orders"
        self._known: dict[str, ForgetOrder] = {}
        self._key: bytes | None = None

    @property
    def folder(self) -> str:
        return self._plan.folder

    def orders(self, subjects: Iterable[str] | None = None) -> tuple[ForgetOrder, ...]:
        """The current orders about these subjects, or all orders. Terminal if the key is not theirs: forgotten rows
        would come back."""
        for name in self._store.names(self._folder):
            if not name.endswith(_DOCUMENT) or name.startswith(".") or name in self._known:
                continue
            order = parse(self._store.read(f"{self._folder}/{name}") or "")
            if order is None:
                error_type = Terminal if self._local else Transient  # elsewhere it may still be half written
                raise error_type(
                    f"the order {name} in {self._folder} cannot be read",
                    hint="put the file back as it was; without it a person that was forgotten could come back",
                )
            self._require_same_key(order)
            self._known[name] = order
        subject_set = None if subjects is None else set(subjects)
        matching = (known for known in self._known.values() if subject_set is None or known.subject in subject_set)
        return tuple(sorted(matching, key=lambda known: (known.time_ms, known.id)))

    @property
    def key(self) -> bytes:
        """The key of the hashes. Terminal if there is none: only `add` creates one."""
        if self._key is None:
            self._key = self._read_key()
        if self._key is None:
            raise Terminal(
                f"the key {self._key_file} is gone; without it the orders beside it cannot be matched to subjects",
                hint="put it back from a backup; the order is the keyed hash of a name",
            )
        return self._key

    def find(self, subject: str, value: object) -> ForgetOrder | None:
        if not self._store.names(self._folder):
            return None
        digest = subject_hash(self.key, subject, value)
        return next((order for order in self.orders([subject]) if order.hash == digest), None)

    def add(self, subject: str, value: object) -> ForgetOrder:
        """The order, stored durably. Returns the existing one if there is one."""
        if (existing := self.find(subject, value)) is not None:
            return existing
        self._key = self._key or self._read_key() or self._make_key()
        order = order_of(self._key, subject, value, time.time_ns() // 1_000_000)
        name = f"{order.id}{_DOCUMENT}"
        if self._local:
            write_durably(Path(self._folder) / name, dump(order).encode())
        else:
            self._store.write(f"{self._folder}/{name}", dump(order))
        self._known[name] = order
        return order

    @property
    def _local(self) -> bool:
        return "://" not in self._plan.folder

    @property
    def _key_file(self) -> str:
        return f"{self._plan.folder}/key"

    def _require_same_key(self, order: ForgetOrder) -> None:
        if order.key != fingerprint(self.key):
            raise Terminal(
                f"the order {order.id} was made with another key than the one at hand",
                hint="give the key that it was made with: `forget: {key: …}` in the project file, or "
                + (self._key_file if self._local else "what that stood for then"),
            )

    def _read_key(self) -> bytes | None:
        if self._plan.key is not None:
            return self._plan.key.get_secret_value().encode()
        text = self._store.read(self._key_file)
        return bytes.fromhex(text.strip()) if text else None

    def _make_key(self) -> bytes:
        if not self._local:  # two processes could create two keys there, and orders by one of them would match nothing
            raise UsageError(
                "on an object store the key of what is forgotten has to be given",
                hint="make one, `openssl rand -hex 32`, and write forget: {key: ${env:FORGET_KEY}} into penstock.yml",
            )
        write_durably(Path(self._key_file), secrets.token_bytes(_KEY_BYTES).hex().encode(), mode=0o600)
        created = self._read_key()
        assert created is not None
        return created


def write_durably(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Writes the file atomically and durably: it is on disk when this returns. An existing file stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    for folder in (path.parent, path.parent.parent):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
