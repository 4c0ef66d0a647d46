package penstock.json;

import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Decodes Debezium's changes into typed columns, as exactly as Decoder reads JSON objects: the columns of the schema,
 * then OP, CHANGED_AT and POSITION, then what Decoder adds. Called by formats/json.py.
 */
public final class Changes implements Serializable {
    static final String OP = "_op", CHANGED_AT = "_changed_at", POSITION = "_position";
    private static final int MORE = 7;
    private static final int MOST_SCHEMAS = 100; // a topic has one at a time, a table of many topics a few more

    private final String ddl;
    private final String zone;
    private final boolean rescue;
    private final String times;
    private final String decimals;
    private final String before;
    private transient volatile Schema schema;

    private Changes(String ddl, String zone, boolean rescue, String times, String decimals, String before) {
        this.ddl = ddl;
        this.zone = zone;
        this.rescue = rescue;
        this.times = times;
        this.decimals = decimals;
        this.before = before;
    }

    /** `times`, `decimals`, `before`: as the user wrote them, or empty. */
    public static Column column(Column value, Column key, String ddl, String zone, boolean rescue, String times,
            String decimals, String before) {
        Changes changes = new Changes(ddl, zone, rescue, times, decimals, before);
        changes.schema(); // an invalid type or time zone is not the fault of a record
        StructType columns = StructType.fromDDL(ddl).asNullable()
                .add(OP, DataTypes.StringType).add(CHANGED_AT, DataTypes.TimestampType)
                .add(POSITION, DataTypes.StringType);
        for (String name : List.of(Decoder.RESCUED, Decoder.UNKNOWN, Decoder.REASON, Decoder.DETAIL)) {
            columns = columns.add(name, DataTypes.StringType);
        }
        Expression self = Literal.fromObject(changes, new ObjectType(Changes.class));
        var arguments = CollectionConverters.asScala(
                List.of(ExpressionUtils.expression(value), ExpressionUtils.expression(key))).toSeq();
        var types = CollectionConverters.asScala(
                List.<AbstractDataType>of(DataTypes.StringType, DataTypes.StringType)).toSeq();
        return ExpressionUtils.column(new Invoke(self, "decode", columns, arguments, types, false, false, true));
    }

    /** Never null, and never throws: whatever is wrong with a record is the reason why it is rejected. */
    public InternalRow decode(UTF8String value, UTF8String key) {
        int width = width();
        Object[] row = new Object[width + MORE];
        if (value == null) {
            return Decoder.faulty(row, new Fault("no_value", "there is no text"));
        }
        if (!value.isValid()) {
            return Decoder.faulty(row, new Fault("not_utf8", "the text is not UTF-8"));
        }
        byte[] bytes = value.getBytes();
        Envelope envelope = new Envelope(this, rescue);
        try {
            envelope.read(bytes, row);
            envelope.settle(row, key == null || !key.isValid() ? null : key.getBytes());
            long micros = envelope.changedAt();
            row[width] = UTF8String.fromString(envelope.op());
            row[width + 1] = micros;
            row[width + 2] = UTF8String.fromString(envelope.position(micros));
            row[width + 3] = envelope.record().rescued();
            row[width + 4] = UTF8String.fromString(envelope.record().unknown());
            return new GenericInternalRow(row);
        } catch (Fault fault) {
            return Decoder.faulty(row, fault);
        } catch (IOException error) {
            return Decoder.faulty(row, Decoder.malformed(error, bytes));
        } catch (RuntimeException | StackOverflowError error) {
            return Decoder.faulty(
                    row, Decoder.failed(error, envelope.record() == null ? "" : envelope.record().place()));
        }
    }

    /** Readers of a row: of a whole one, and of what is known of a deleted one. */
    record Readers(Values.Fields whole, Values.Fields known) {}

    private record Schema(
            StructType struct, Encoded encoded, Readers plain, Map<ByteBuffer, Readers> seen,
            Map<ByteBuffer, Values.Fields> keys) {}

    private Schema schema() {
        Schema current = schema;
        if (current == null) {
            StructType struct = StructType.fromDDL(ddl);
            Encoded encoded = new Encoded(DateTimeUtils.getZoneId(zone), times, decimals);
            Readers plain = new Readers(encoded.fields(struct, null, true), encoded.fields(struct, null, false));
            current = schema = new Schema(struct, encoded, plain, new ConcurrentHashMap<>(), new ConcurrentHashMap<>());
        }
        return current;
    }

    int width() {
        return schema().plain.whole().width();
    }

    Readers plain() {
        return schema().plain;
    }

    /** The readers for the schema part of a record, which most records share with the one before. */
    Readers readers(ByteBuffer part) throws IOException {
        Schema current = schema();
        Readers readers = current.seen.get(part);
        if (readers == null) {
            Meaning meaning = meaning(part);
            Readers created = new Readers(
                    current.encoded.fields(current.struct, Meaning.of(meaning, "after"), true),
                    current.encoded.fields(current.struct, Meaning.of(meaning, "before"), false));
            readers = remember(current.seen, part, created);
        }
        return readers;
    }

    Values.Fields keys(ByteBuffer part) throws IOException {
        Schema current = schema();
        Values.Fields fields = current.keys.get(part);
        return fields != null ? fields
                : remember(current.keys, part, current.encoded.fields(current.struct, meaning(part), false));
    }

    private static Meaning meaning(ByteBuffer part) throws IOException {
        Meaning meaning = Meaning.read(bytes(part));
        if (meaning == null) {
            throw new Fault("wrong_type", "schema is not an object: " + Shown.of(bytes(part)));
        }
        return meaning;
    }

    private static <T> T remember(Map<ByteBuffer, T> cache, ByteBuffer part, T value) {
        if (cache.size() >= MOST_SCHEMAS) {
            cache.clear();
        }
        cache.put(ByteBuffer.wrap(bytes(part)), value);
        return value;
    }

    private static byte[] bytes(ByteBuffer part) {
        return Arrays.copyOfRange(part.array(), part.position(), part.limit());
    }

    /** Whether this connector's `before` is the whole row as it was, and not its key with zeros for the rest. */
    boolean trusts(String connector) {
        return before.isEmpty() ? !connector.equals("postgresql") : before.equals("full");
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Changes that && List.of(ddl, zone, rescue, times, decimals, before)
                .equals(List.of(that.ddl, that.zone, that.rescue, that.times, that.decimals, that.before));
    }

    @Override
    public int hashCode() {
        return Objects.hash(ddl, zone, rescue, times, decimals, before);
    }

    @Override
    public String toString() {
        return "penstock_debezium";
    }
}
