package penstock.kafka;

import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.kafka010.KafkaMicroBatchStream;
import org.apache.spark.sql.kafka010.KafkaSourceProvider;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark's Kafka source with another conversion from a record to a row, {@link RecordReader}: one record with a
 * timestamp that Spark cannot hold would stop the stream for ever. Offsets, options, limits and checkpoints are those
 * of Spark's source. sources/kafka.py reads with it.
 */
public final class Records implements TableProvider {
    private final KafkaSourceProvider inner = new KafkaSourceProvider();

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return inner.inferSchema(options);
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new Topics(inner.getTable(new CaseInsensitiveStringMap(properties)));
    }

    private static final class Topics implements SupportsRead {
        private final KafkaSourceProvider.KafkaTable inner;

        Topics(KafkaSourceProvider.KafkaTable inner) {
            this.inner = inner;
        }

        @Override
        public String name() {
            return inner.name();
        }

        @Override
        @SuppressWarnings("deprecation")
        public StructType schema() {
            return inner.schema();
        }

        @Override
        public Set<TableCapability> capabilities() {
            return Set.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ);
        }

        @Override
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            var builder = inner.newScanBuilder(options);
            return () -> new Reading(builder.build());
        }
    }

    private static final class Reading implements Scan {
        private final Scan inner;

        Reading(Scan inner) {
            this.inner = inner;
        }

        @Override
        public StructType readSchema() {
            return inner.readSchema();
        }

        @Override
        public String description() {
            return inner.description();
        }

        @Override
        public Batch toBatch() {
            return new Range(inner.toBatch());
        }

        @Override
        public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
            return new Stream((KafkaMicroBatchStream) inner.toMicroBatchStream(checkpointLocation));
        }

        @Override
        public CustomMetric[] supportedCustomMetrics() {
            return inner.supportedCustomMetrics();
        }

        @Override
        public CustomTaskMetric[] reportDriverMetrics() {
            return inner.reportDriverMetrics();
        }

        @Override
        public ColumnarSupportMode columnarSupportMode() {
            return inner.columnarSupportMode();
        }
    }

    private static final class Range implements Batch {
        private final Batch inner;

        Range(Batch inner) {
            this.inner = inner;
        }

        @Override
        public InputPartition[] planInputPartitions() {
            return inner.planInputPartitions();
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            return new RecordReader.Factory(inner.createReaderFactory());
        }

        @Override
        public String toString() {
            return inner.toString();
        }
    }

    private static final class Stream implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
        private final KafkaMicroBatchStream inner;

        Stream(KafkaMicroBatchStream inner) {
            this.inner = inner;
        }

        @Override
        public Offset initialOffset() {
            return inner.initialOffset();
        }

        @Override
        public Offset latestOffset() {
            return inner.latestOffset();
        }

        @Override
        public Offset latestOffset(Offset start, ReadLimit limit) {
            return inner.latestOffset(start, limit);
        }

        @Override
        public Offset reportLatestOffset() {
            return inner.reportLatestOffset();
        }

        @Override
        public ReadLimit getDefaultReadLimit() {
            return inner.getDefaultReadLimit();
        }

        @Override
        public void prepareForTriggerAvailableNow() {
            inner.prepareForTriggerAvailableNow();
        }

        @Override
        public Map<String, String> metrics(Optional<Offset> latestConsumedOffset) {
            return inner.metrics(latestConsumedOffset);
        }

        @Override
        public InputPartition[] planInputPartitions(Offset start, Offset end) {
            return inner.planInputPartitions(start, end);
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            return new RecordReader.Factory(inner.createReaderFactory());
        }

        @Override
        public Offset deserializeOffset(String json) {
            return inner.deserializeOffset(json);
        }

        @Override
        public void commit(Offset end) {
            inner.commit(end);
        }

        @Override
        public void stop() {
            inner.stop();
        }

        @Override
        public String toString() {
            return inner.toString();
        }
    }
}
