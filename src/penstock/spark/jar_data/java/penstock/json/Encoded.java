package penstock.json;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.ZoneId;
import java.util.Base64;
import java.util.Set;
import java.util.UUID;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;

/**
 * Values as Debezium writes them into JSON. What one means is said by the schema part of its record; without one, by
 * what the user wrote. A value of which neither says what it means is a fault.
 */
final class Encoded {
    static final String PLACEHOLDER = "__debezium_unavailable_value";
    private static final byte[] PLACEHOLDER_BYTES = PLACEHOLDER.getBytes(StandardCharsets.UTF_8);
    private static final Set<String> PLACEHOLDERS = Set.of(
            PLACEHOLDER,
            Base64.getEncoder().encodeToString(PLACEHOLDER_BYTES),
            UUID.nameUUIDFromBytes(PLACEHOLDER_BYTES).toString());
    // milliseconds until 2286, microseconds until April of 1970
    private static final long DOUBTFUL = 10_000_000_000_000L;
    private static final long DAY = 86_400_000_000L;
    private static final String DECIMAL = "org.apache.kafka.connect.data.Decimal";
    private static final String ISO_TIMESTAMP = "io.debezium.time.IsoTimestamp";
    private static final Texts WHOLE = Texts.of(DataTypes.LongType, null);
    private static final Set<String> DATES = Set.of("io.debezium.time.Date", "org.apache.kafka.connect.data.Date");

    private final ZoneId zone;
    private final String times;
    private final String decimals;

    /** `times` is millis, micros, nanos or nothing; `decimals` is string, unscaled or nothing. */
    Encoded(ZoneId zone, String times, String decimals) {
        this.zone = zone;
        this.times = times;
        this.decimals = decimals;
    }

    /** `meaning` is that of the object, or null. A lenient reader takes a value that was not sent for no value. */
    Values.Fields fields(StructType struct, Meaning meaning, boolean strict) {
        return new Values.Fields(struct, (name, type) -> of(type, Meaning.of(meaning, name), strict), strict);
    }

    private Values of(DataType type, Meaning meaning, boolean strict) {
        Values values;
        if (type instanceof StructType struct) {
            values = Values.object(struct, fields(struct, meaning, strict));
        } else if (type instanceof ArrayType array) {
            values = array(array,
                    Values.array(array, of(array.elementType(), meaning == null ? null : meaning.element, strict)));
        } else if (type instanceof MapType map) {
            values = Values.map(map, of(map.valueType(), meaning == null ? null : meaning.element, strict));
        } else {
            values = scalar(type, meaning);
        }
        return record -> {
            if (record.parser.currentToken() == JsonToken.VALUE_STRING
                    && PLACEHOLDERS.contains(record.parser.getText())) {
                return strict ? unavailable(record, record.start()) : null;
            }
            return values.read(record);
        };
    }

    private static Object unavailable(Record record, int start) throws IOException {
        return record.refuse("unavailable_value", " stands for a large value that did not change and was not sent: "
                + "ALTER TABLE … REPLICA IDENTITY FULL in the database", start);
    }

    /** The place of an array that was not sent is taken by the bytes of the words for it. */
    private static Values array(ArrayType type, Values values) {
        boolean numbers = type.elementType() instanceof IntegralType || type.elementType() instanceof DateType;
        return !numbers ? values : record -> {
            int start = record.start();
            Object found = values.read(record);
            return found instanceof ArrayData data && isPlaceholder(data) ? unavailable(record, start) : found;
        };
    }

    private static boolean isPlaceholder(ArrayData data) {
        Object[] found = data.array();
        boolean same = found.length == PLACEHOLDER_BYTES.length;
        for (int i = 0; same && i < found.length; i++) {
            same = found[i] instanceof Number number && number.longValue() == PLACEHOLDER_BYTES[i];
        }
        return same;
    }

    private Values scalar(DataType type, Meaning meaning) {
        if (type instanceof DecimalType decimal) {
            return decimal(decimal, meaning);
        }
        Values plain = Scalars.of(type, zone);
        String written = meaning == null ? "" : meaning.type;
        return switch (type.typeName()) {
            case "timestamp", "timestamp_ntz" -> time(type, meaning, plain);
            case "date" -> date(type, meaning, plain);
            case "float" -> number(plain, Float.NaN, Float.POSITIVE_INFINITY, Float.NEGATIVE_INFINITY);
            case "double" -> number(plain, Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY);
            case "string" -> record -> isText(record) && !written.equals("bytes") ? plain.read(record)
                    : record.wrong(type);
            case "binary" -> {
                boolean bytes = meaning == null || written.equals("bytes") && !meaning.name.equals(DECIMAL);
                yield record -> bytes ? plain.read(record) : record.wrong(type);
            }
            default -> plain;
        };
    }

    private static boolean isText(Record record) {
        return record.parser.currentToken() == JsonToken.VALUE_STRING;
    }

    /** JSON has no word for these numbers, so Connect writes them as text. */
    private static Values number(Values plain, Object nan, Object most, Object least) {
        return record -> isText(record) ? switch (record.parser.getText()) {
            case "NaN" -> nan;
            case "Infinity" -> most;
            case "-Infinity" -> least;
            default -> plain.read(record);
        } : plain.read(record);
    }

    private Values decimal(DecimalType type, Meaning meaning) {
        Values plain = Scalars.of(type, zone);
        Decimals rule = new Decimals(type);
        return record -> {
            JsonToken token = record.parser.currentToken();
            if (token == JsonToken.START_OBJECT) {
                return variable(record, type, rule);
            }
            if (token != JsonToken.VALUE_STRING) {
                return plain.read(record);
            }
            if (meaning != null) {
                if (meaning.type.equals("bytes") && meaning.name.equals(DECIMAL)) {
                    return meaning.scale == null
                            ? record.refuse("unknown_encoding", " is a decimal whose schema does not say its scale")
                            : unscaled(record, type, rule, meaning.scale);
                }
                return meaning.type.equals("string") ? plain.read(record) : record.wrong(type);
            }
            return switch (decimals) {
                case "string" -> plain.read(record);
                case "unscaled" -> unscaled(record, type, rule, type.scale());
                default -> record.refuse(
                        "unknown_encoding",
                        " may be digits or bytes: write decimals: string if the connector "
                                + "has decimal.handling.mode=string, or let it send schemas");
            };
        };
    }

    private static Object unscaled(Record record, DecimalType type, Decimals rule, int scale) throws IOException {
        byte[] bytes = bytes(record.parser);
        return Scalars.settled(record, type, bytes == null ? Texts.WRONG : rule.unscaled(bytes, scale));
    }

    /** {"scale": 2, "value": "bytes"}: of a column that says nothing of its scale. */
    private static Object variable(Record record, DecimalType type, Decimals rule) throws IOException {
        JsonParser parser = record.parser;
        int start = record.start();
        Integer scale = null;
        byte[] bytes = null;
        boolean others = false;
        for (String name; (name = parser.nextFieldName()) != null; ) {
            JsonToken token = parser.nextToken();
            if (name.equals("scale") && scale == null && token == JsonToken.VALUE_NUMBER_INT) {
                scale = parser.getNumberType() == JsonParser.NumberType.INT ? parser.getIntValue() : null;
            } else if (name.equals("value") && bytes == null && token == JsonToken.VALUE_STRING) {
                bytes = bytes(parser);
            } else {
                others = true;
                record.skip();
            }
        }
        if (scale == null || bytes == null || others) {
            return record.refuse("wrong_type", " is not of type DECIMAL", start);
        }
        Object exact = rule.unscaled(bytes, scale);
        return exact == Texts.UNFIT ? record.refuse("out_of_range", " does not fit " + type.sql(), start) : exact;
    }

    /** Null if it is not base64, or nothing. */
    private static byte[] bytes(JsonParser parser) throws IOException {
        char[] text = parser.getTextCharacters();
        int from = parser.getTextOffset();
        return Bytes.read(text, from, from + parser.getTextLength()) instanceof byte[] found && found.length > 0
                ? found
                : null;
    }

    private Values time(DataType type, Meaning meaning, Values text) {
        Texts rule = Texts.of(type, zone);
        boolean iso = type.typeName().equals("timestamp_ntz")
                && (meaning == null || meaning.name.equals(ISO_TIMESTAMP));
        return record -> {
            if (record.parser.currentToken() != JsonToken.VALUE_NUMBER_INT) {
                return iso && isText(record) ? isoTime(record, type, rule) : text.read(record);
            }
            if (!(number(record) instanceof Long value)) {
                return record.unfit(type);
            }
            String unit = meaning == null ? times : unit(meaning.name);
            if (unit == null) {
                return record.wrong(type);
            }
            if (unit.isEmpty() && -DOUBTFUL < value && value < DOUBTFUL) {
                return record.refuse(
                        "unknown_encoding",
                        " may be milliseconds or microseconds: write times: millis or times: micros, or let the "
                                + "connector send schemas");
            }
            boolean millis = unit.equals("millis"), nanos = unit.equals("nanos");
            if (nanos && value % 1000 != 0 || millis && (value < Times.FIRST / 1000 || value > Times.LAST / 1000)) {
                return record.unfit(type);
            }
            long micros = millis ? value * 1000 : nanos ? value / 1000 : value;
            return Times.FIRST <= micros && micros <= Times.LAST ? (Object) micros : record.unfit(type);
        };
    }

    /** A whole number that a long holds, or something else. */
    private static Object number(Record record) throws IOException {
        char[] text = record.parser.getTextCharacters();
        int from = record.parser.getTextOffset();
        return WHOLE.read(text, from, from + record.parser.getTextLength());
    }

    /** 2024-02-29T10:00:00Z of a time without a zone, as Debezium writes it where it writes times as text. */
    private static Object isoTime(Record record, DataType type, Texts rule) throws IOException {
        char[] text = record.parser.getTextCharacters();
        int from = record.parser.getTextOffset(), to = from + record.parser.getTextLength();
        return Scalars.settled(record, type, rule.read(text, from, to > from && text[to - 1] == 'Z' ? to - 1 : to));
    }

    /** Null if a value of this kind is no moment. */
    private String unit(String name) {
        return switch (name) {
            case "io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp" -> "millis";
            case "io.debezium.time.MicroTimestamp" -> "micros";
            case "io.debezium.time.NanoTimestamp" -> "nanos";
            case "" -> times.isEmpty() ? null : times; // a number in the database too: the user says what it counts
            default -> null;
        };
    }

    private static Values date(DataType type, Meaning meaning, Values text) {
        boolean days = meaning == null || DATES.contains(meaning.name);
        return record -> {
            JsonToken token = record.parser.currentToken();
            if (token == JsonToken.VALUE_STRING && record.parser.getTextLength() == 11) {
                return isoDate(record, type);
            }
            if (token != JsonToken.VALUE_NUMBER_INT || !days) {
                return token == JsonToken.VALUE_NUMBER_INT ? record.wrong(type) : text.read(record);
            }
            boolean fits = number(record) instanceof Long found && Times.FIRST / DAY <= found
                    && found <= Times.LAST / DAY;
            return fits ? (Object) record.parser.getIntValue() : record.unfit(type);
        };
    }

    /** 2024-02-29Z, as Debezium writes it where it writes times as text. */
    private static Object isoDate(Record record, DataType type) throws IOException {
        char[] text = record.parser.getTextCharacters();
        int from = record.parser.getTextOffset();
        Object days = text[from + 10] == 'Z' ? Times.date(text, from, from + 10) : Texts.WRONG;
        return Scalars.settled(record, type, days);
    }
}
