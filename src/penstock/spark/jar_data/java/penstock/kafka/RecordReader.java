package penstock.kafka;

import java.nio.charset.StandardCharsets;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;
import org.apache.spark.sql.kafka010.KafkaRecordToRowConverter;
import org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer;
import scala.Function1;

/**
 * Reads the records of one partition between two offsets as rows, for Records. A timestamp is a number that a producer
 * chose: outside the years 1 to 9999 it becomes NULL, and the number itself a header of the row; for a record without a
 * timestamp it is NULL too.
 */
final class RecordReader implements PartitionReader<InternalRow> {
    static final String TIMESTAMP_HEADER = "penstock.timestamp";
    private static final long NO_TIMESTAMP = -1;
    private static final long FIRST_MILLIS = -62135596800000L; // 0001-01-01T00:00:00Z
    private static final long LAST_MILLIS = 253402300799999L; // 9999-12-31T23:59:59.999Z
    private final KafkaBatchInputPartition part;
    private final KafkaDataConsumer consumer;
    private final Function1<ConsumerRecord<byte[], byte[]>, UnsafeRow> convert;
    private final int timestamp;
    private final long end;
    private long offset;
    private UnsafeRow row;

    private RecordReader(KafkaBatchInputPartition part) {
        this.part = part;
        convert = new KafkaRecordToRowConverter().toUnsafeRowProjector(part.includeHeaders());
        timestamp = KafkaRecordToRowConverter.kafkaSchema(part.includeHeaders()).fieldIndex("timestamp");
        offset = part.offsetRange().fromOffset();
        end = part.offsetRange().untilOffset();
        consumer = KafkaDataConsumer.acquire(part.offsetRange().topicPartition(), part.executorKafkaParams());
    }

    @Override
    public boolean next() {
        var record = offset < end ? consumer.get(offset, end, part.pollTimeoutMs(), part.failOnDataLoss()) : null;
        if (record == null) {
            return false;
        }
        long millis = record.timestamp();
        if (millis >= FIRST_MILLIS && millis <= LAST_MILLIS && millis != NO_TIMESTAMP) {
            row = convert.apply(record);
        } else {
            row = convert.apply(millis == NO_TIMESTAMP ? record : withHeader(record));
            row.setNullAt(timestamp);
        }
        offset = record.offset() + 1;
        return true;
    }

    /** The record with the time 0, which every converter accepts, and its own time as its last header. */
    private static ConsumerRecord<byte[], byte[]> withHeader(ConsumerRecord<byte[], byte[]> record) {
        var headers = new RecordHeaders(record.headers());
        headers.add(TIMESTAMP_HEADER, Long.toString(record.timestamp()).getBytes(StandardCharsets.US_ASCII));
        return new ConsumerRecord<>(
                record.topic(), record.partition(), record.offset(), 0, record.timestampType(),
                record.serializedKeySize(), record.serializedValueSize(), record.key(), record.value(), headers,
                Optional.empty());
    }

    @Override
    public InternalRow get() {
        return row;
    }

    @Override
    public void close() {
        consumer.release();
    }

    @Override
    public CustomTaskMetric[] currentMetricsValues() {
        return new CustomTaskMetric[] {
            new Metric("offsetOutOfRange", consumer.getNumOffsetOutOfRange()),
            new Metric("dataLoss", consumer.getNumDataLoss())
        };
    }

    private record Metric(String name, long value) implements CustomTaskMetric {}

    /** Ranges with an open end, which Penstock never asks for, are left to Spark's own reader. */
    record Factory(PartitionReaderFactory sparks) implements PartitionReaderFactory {
        @Override
        public PartitionReader<InternalRow> createReader(InputPartition partition) {
            var part = (KafkaBatchInputPartition) partition;
            boolean open = part.offsetRange().fromOffset() < 0 || part.offsetRange().untilOffset() < 0;
            return open ? sparks.createReader(partition) : new RecordReader(part);
        }
    }
}
