"""A confluent-kafka consumer on every partition of a topic that no longer grows."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

BASE = {"enable.auto.commit": False, "enable.partition.eof": False, "auto.offset.reset": "error"}
FAR_AHEAD = {
    "fetch.message.max.bytes": 16 * 1024 * 1024,
    "fetch.max.bytes": 64 * 1024 * 1024,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 512 * 1024,
    "receive.message.max.bytes": 128 * 1024 * 1024,
}
AT_ONCE = 10_000


class Assigned:
    """Reads each partition from start(partition), else from its earliest record; `left` counts down to the end."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        start: Callable[[int], int | None] = lambda _: None,
        *,
        far_ahead: bool = False,
    ) -> None:
        """`far_ahead`: with larger fetches and queues than the client has by itself."""
        conf = {"bootstrap.servers": bootstrap, "group.id": "bench", **BASE, **(FAR_AHEAD if far_ahead else {})}
        self._consumer = Consumer(conf)
        positions = []
        self.left = 0
        for partition in self._consumer.list_topics(topic, timeout=10).topics[topic].partitions:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
            known = start(partition)
            positions.append(TopicPartition(topic, partition, low if known is None else known))
            self.left += high - positions[-1].offset
        self._consumer.assign(positions)

    def take(self, most: int) -> list[Message]:
        """`most` records, fewer only at the end of the topic."""
        wanted = min(most, self.left)
        taken: list[Message] = []
        while len(taken) < wanted:
            for message in (some := self._consumer.consume(min(AT_ONCE, wanted - len(taken)), timeout=5.0)):
                if message.error():
                    raise KafkaException(message.error())
            taken += some
        self.left -= wanted
        return taken

    def close(self) -> None:
        self._consumer.close()
