package penstock.json;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructType;

/**
 * What is known of the values of one field in many JSON objects, and the type that holds them all without loss; called
 * by sources/files/lines.py. The result depends neither on the order of the records nor on how they are divided.
 *
 * Values of different kinds, such as an object and a number, have no common type but their text: such a field is a
 * STRING with the mark TEXT, which names the kinds. So are numbers that neither a DOUBLE nor a DECIMAL holds, and
 * objects and lists below the deepest level that a column may have. A list with such elements is such a field as a
 * whole.
 */
public final class Inference implements Serializable {
    /** A key in the metadata of a field: the field takes any value, as its JSON text. */
    public static final String TEXT = "json_text";
    private static final int MOST_FIELDS = 10_000; // of one object: any more get no columns
    /** Levels of objects and lists within a record: Spark, Delta and Python walk through types by recursion. */
    private static final int DEEPEST = 30;
    private static final int MOST_DIGITS = 38;
    private static final long EXACT = 1L << 53;
    private static final long MOST_EXPONENT = 400;

    private boolean text, truth, whole, fraction, object, list;
    private boolean tooDeep;
    private boolean beyondLong, beyondExact, beyondDouble;
    private int digits, scale;
    private final TreeMap<String, Inference> fields = new TreeMap<>();
    private Inference element;
    private long records;

    /** Reads the first column, which is text. Records that are not one whole object are left out. */
    public static Inference of(Dataset<Row> texts) {
        MapPartitionsFunction<Row, byte[]> part = rows -> List.of(written(of(rows))).iterator();
        Inference merged = new Inference();
        for (byte[] partial : (byte[][]) texts.mapPartitions(part, Encoders.BINARY()).collect()) {
            merged.merge(read(partial));
        }
        return merged;
    }

    private static Inference of(Iterator<Row> rows) {
        Inference merged = new Inference();
        while (rows.hasNext()) {
            Row row = rows.next();
            if (!row.isNullAt(0)) {
                merged.add(row.getString(0).getBytes(java.nio.charset.StandardCharsets.UTF_8));
            }
        }
        return merged;
    }

    private void add(byte[] bytes) {
        try (JsonParser parser = Decoder.JSON.createParser(bytes)) {
            Record record = new Record(parser, bytes, false, Set.of());
            record.openObject();
            Inference inferred = new Inference();
            inferred.read(record, 0);
            record.refuseMore("object");
            merge(inferred);
            records++;
        } catch (IOException | RuntimeException | StackOverflowError rejected) {
            // the decoder will reject it, with the reason
        }
    }

    /** How many records the fields come from. */
    public long records() {
        return records;
    }

    /** The fields in the order of their names, in Spark's JSON form of a schema. A field without a value is void. */
    public String schema() {
        return struct().json();
    }

    private void read(Record record, int depth) throws IOException {
        JsonParser parser = record.parser;
        switch (parser.currentToken()) {
            case VALUE_NULL -> {}
            case VALUE_STRING -> text = true;
            case VALUE_TRUE, VALUE_FALSE -> truth = true;
            case START_OBJECT, START_ARRAY -> {
                boolean isObject = parser.currentToken() == JsonToken.START_OBJECT;
                object |= isObject;
                list |= !isObject;
                if (depth > DEEPEST) {
                    tooDeep |= record.skip();
                } else if (isObject) {
                    object(record, depth);
                } else {
                    element = element == null ? new Inference() : element;
                    while (parser.nextToken() != JsonToken.END_ARRAY) {
                        element.read(record, depth + 1);
                    }
                }
            }
            default -> number(parser.getText());
        }
    }

    private void object(Record record, int depth) throws IOException {
        JsonParser parser = record.parser;
        Set<String> names = new HashSet<>();
        for (String name; (name = parser.nextFieldName()) != null; ) {
            if (!names.add(name)) {
                throw new Fault("duplicate_field", name);
            }
            parser.nextToken();
            if (Record.hasHalves(name)) {
                record.skip();
            } else {
                fields.computeIfAbsent(name, key -> new Inference()).read(record, depth + 1);
            }
        }
        bound();
    }

    private void number(String written) {
        boolean isWhole = written.indexOf('.') < 0 && written.indexOf('e') < 0 && written.indexOf('E') < 0;
        whole |= isWhole;
        fraction |= !isWhole;
        beyondDouble |= Numbers.real(written.toCharArray(), 0, written.length()) == Texts.UNFIT;
        if (written.length() > MOST_EXPONENT || exponent(written) > MOST_EXPONENT) {
            digits = MOST_DIGITS + 1;
            beyondLong |= isWhole;
            beyondExact |= isWhole;
            return;
        }
        BigDecimal value = new BigDecimal(written);
        digits = Math.max(digits, value.signum() == 0 ? 1 : value.precision() - value.scale());
        scale = Math.max(scale, value.stripTrailingZeros().scale());
        if (isWhole) {
            boolean isLong = value.precision() < 19 || value.toBigInteger().bitLength() < 64;
            beyondLong |= !isLong;
            beyondExact |= !isLong || Math.abs(value.longValue()) > EXACT || value.longValue() == Long.MIN_VALUE;
        }
    }

    private static long exponent(String written) {
        int at = Math.max(written.indexOf('e'), written.indexOf('E'));
        String digits = at < 0 ? "0" : written.substring(at + 1).replaceFirst("^[+-]?0*", "");
        return digits.isEmpty() ? 0 : digits.length() > 9 ? Long.MAX_VALUE : Long.parseLong(digits);
    }

    private void merge(Inference other) {
        text |= other.text;
        truth |= other.truth;
        whole |= other.whole;
        fraction |= other.fraction;
        object |= other.object;
        list |= other.list;
        tooDeep |= other.tooDeep;
        beyondLong |= other.beyondLong;
        beyondExact |= other.beyondExact;
        beyondDouble |= other.beyondDouble;
        digits = Math.max(digits, other.digits);
        scale = Math.max(scale, other.scale);
        records += other.records;
        for (Map.Entry<String, Inference> field : other.fields.entrySet()) {
            fields.computeIfAbsent(field.getKey(), key -> new Inference()).merge(field.getValue());
        }
        bound();
        if (other.element != null) {
            element = element == null ? new Inference() : element;
            element.merge(other.element);
        }
    }

    /** Keeps the names that sort first, whatever order they came in. */
    private void bound() {
        while (fields.size() > MOST_FIELDS) {
            fields.pollLastEntry();
        }
    }

    private List<String> kinds() {
        List<String> kinds = new ArrayList<>();
        if (object) {
            kinds.add("object");
        }
        if (list) {
            kinds.add("array");
        }
        if (text) {
            kinds.add("string");
        }
        if (whole || fraction) {
            kinds.add("number");
        }
        if (truth) {
            kinds.add("boolean");
        }
        return kinds;
    }

    private StructType struct() {
        StructType struct = new StructType();
        for (Map.Entry<String, Inference> field : fields.entrySet()) {
            DataType type = field.getValue().type();
            Metadata mark = type != null ? Metadata.empty()
                    : new MetadataBuilder().putString(TEXT, String.join(", ", field.getValue().mixed())).build();
            struct = struct.add(field.getKey(), type == null ? DataTypes.StringType : type, true, mark);
        }
        return struct;
    }

    /** Void if there was no value, nested ones included; null if only JSON text holds all of them. */
    private DataType type() {
        if (kinds().size() != 1) {
            return kinds().isEmpty() ? DataTypes.NullType : null;
        }
        if (tooDeep) {
            return null;
        }
        if (object) {
            StructType struct = struct();
            for (var field : struct.fields()) {
                if (!field.dataType().equals(DataTypes.NullType)) {
                    return struct;
                }
            }
            return DataTypes.NullType;
        }
        if (list) {
            DataType elementType = element == null ? DataTypes.NullType : element.type();
            return elementType == null || elementType.equals(DataTypes.NullType)
                    ? elementType
                    : new ArrayType(elementType, true);
        }
        return text ? DataTypes.StringType : truth ? DataTypes.BooleanType : number();
    }

    private DataType number() {
        if (!fraction && !beyondLong) {
            return DataTypes.LongType;
        }
        if (fraction && !beyondDouble && !(whole && beyondExact)) {
            return DataTypes.DoubleType;
        }
        int fractionDigits = Math.max(scale, 0);
        return digits + fractionDigits <= MOST_DIGITS ? new DecimalType(MOST_DIGITS, fractionDigits) : null;
    }

    /** The kinds of values, in words for the user. */
    private List<String> mixed() {
        List<String> kinds = kinds();
        if (kinds.size() > 1) {
            return kinds;
        }
        Inference inner = this;
        while (inner.list && !inner.tooDeep && inner.kinds().size() == 1) {
            inner = inner.element;
        }
        if (inner.tooDeep) {
            return List.of(kinds.get(0) + " nested deeper than " + DEEPEST + " levels");
        }
        return list ? List.of("array of " + String.join(", ", element.mixed())) : List.of("number of any size");
    }

    private static byte[] written(Inference inference) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
            out.writeObject(inference);
        }
        return bytes.toByteArray();
    }

    private static Inference read(byte[] bytes) {
        try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(bytes))) {
            return (Inference) in.readObject();
        } catch (IOException | ClassNotFoundException error) {
            throw new IllegalStateException(error);
        }
    }
}
