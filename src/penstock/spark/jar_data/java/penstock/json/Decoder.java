package penstock.json;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.core.exc.StreamConstraintsException;
import java.io.IOException;
import java.io.Serializable;
import java.util.List;
import java.util.Objects;
import java.util.Set;
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
 * Decodes a JSON object into typed columns in one parse, exactly: a value that does not fit its type is a fault of the
 * record, with a reason, and never becomes another value. Spark's own parser rounds, wraps around, takes the last of
 * two equal fields, and ignores what follows the object. Called by formats/json.py.
 *
 * The columns of the schema are followed by RESCUED, the fields of the object that the schema does not name, as JSON;
 * UNKNOWN, the first such field, at any depth; and REASON and DETAIL, of a record that has a fault.
 */
public final class Decoder implements Serializable {
    static final String RESCUED = "__rescued", UNKNOWN = "__unknown", REASON = "__reason", DETAIL = "__detail";
    private static final int DEEPEST = 1000;
    private static final int LONGEST_MESSAGE = 200;
    static final JsonFactory JSON = JsonFactory.builder()
            .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
            .disable(JsonFactory.Feature.FAIL_ON_SYMBOL_HASH_OVERFLOW) // no record may stop a stream
            .streamReadConstraints(StreamReadConstraints.builder().maxNestingDepth(DEEPEST)
                    .maxStringLength(Integer.MAX_VALUE).maxNumberLength(Integer.MAX_VALUE)
                    .maxNameLength(Integer.MAX_VALUE).build())
            .build();

    private final String ddl;
    private final String zone;
    private final boolean rescue;
    private final boolean deep;
    private final Set<String> expected;
    private transient volatile Values.Fields fields;

    private Decoder(String ddl, String zone, boolean rescue, boolean deep, Set<String> expected) {
        this.ddl = ddl;
        this.zone = zone;
        this.rescue = rescue;
        this.deep = deep;
        this.expected = expected;
    }

    /**
     * `expected` are fields that the schema does not name and that are not reported as unknown. `deep` rescues the
     * fields of nested objects too, by their paths.
     */
    public static Column column(
            Column text, String ddl, String zone, boolean rescue, boolean deep, List<String> expected) {
        Decoder decoder = new Decoder(ddl, zone, rescue, deep, Set.copyOf(expected));
        decoder.fields(); // an invalid type or time zone is not the fault of a record
        StructType columns = (StructType) Values.withoutNotes(StructType.fromDDL(ddl).asNullable());
        for (String name : List.of(RESCUED, UNKNOWN, REASON, DETAIL)) {
            columns = columns.add(name, DataTypes.StringType);
        }
        Expression self = Literal.fromObject(decoder, new ObjectType(Decoder.class));
        var arguments = CollectionConverters.asScala(List.of(ExpressionUtils.expression(text))).toSeq();
        var types = CollectionConverters.asScala(List.<AbstractDataType>of(DataTypes.StringType)).toSeq();
        return ExpressionUtils.column(new Invoke(self, "decode", columns, arguments, types, false, false, true));
    }

    private Values.Fields fields() {
        Values.Fields current = fields;
        if (current == null) {
            current = fields = new Values.Fields(StructType.fromDDL(ddl), DateTimeUtils.getZoneId(zone));
        }
        return current;
    }

    /** Never null, and never throws: whatever is wrong with a record is the reason why it is rejected. */
    public InternalRow decode(UTF8String text) {
        Values.Fields reader = fields();
        int width = reader.width();
        Object[] row = new Object[width + 4];
        if (text == null) {
            return faulty(row, new Fault("no_value", "there is no text"));
        }
        if (!text.isValid()) {
            return faulty(row, new Fault("not_utf8", "the text is not UTF-8"));
        }
        byte[] bytes = text.getBytes();
        Record record = null;
        try (JsonParser parser = JSON.createParser(bytes)) {
            record = new Record(parser, bytes, rescue, expected, "", deep);
            record.openObject();
            reader.read(record, row, true);
            record.refuseMore("object");
            row[width] = record.rescued();
            row[width + 1] = UTF8String.fromString(record.unknown());
            return record.fault() == null ? new GenericInternalRow(row) : faulty(row, record.fault());
        } catch (Fault fault) {
            return faulty(row, fault);
        } catch (IOException error) {
            return faulty(row, malformed(error, bytes));
        } catch (RuntimeException | StackOverflowError error) {
            return faulty(row, failed(error, record == null ? "" : record.place()));
        }
    }

    static Fault malformed(IOException error, byte[] bytes) {
        if (error instanceof StreamConstraintsException) {
            return new Fault("malformed_json", "nested deeper than " + DEEPEST + " levels: " + Shown.of(bytes));
        }
        if (error instanceof JsonProcessingException syntaxError) {
            long offset = syntaxError.getLocation() == null ? 0 : syntaxError.getLocation().getByteOffset();
            return new Fault("malformed_json", "not JSON, at byte " + Math.max(offset, 0) + ": " + Shown.of(bytes));
        }
        return new Fault("malformed_json", "not JSON: " + Shown.of(bytes));
    }

    /** An unforeseen error. It must not stop the table: the next start would meet the same record. */
    static Fault failed(Throwable error, String path) {
        String message = error.getMessage() == null ? "" : ": " + Shown.of(error.getMessage(), LONGEST_MESSAGE);
        String prefix = path.isEmpty() ? "" : path + ": ";
        return new Fault("decode_failed", prefix + "cannot be decoded: " + error.getClass().getSimpleName() + message);
    }

    static InternalRow faulty(Object[] row, Fault fault) {
        row[row.length - 2] = UTF8String.fromString(fault.reason);
        row[row.length - 1] = UTF8String.fromString(fault.detail);
        return new GenericInternalRow(row);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Decoder that && ddl.equals(that.ddl) && zone.equals(that.zone) && rescue == that.rescue
                && deep == that.deep && expected.equals(that.expected);
    }

    @Override
    public int hashCode() {
        return Objects.hash(ddl, zone, rescue, deep, expected);
    }

    @Override
    public String toString() {
        return "penstock_json";
    }
}
