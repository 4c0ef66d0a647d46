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
 * Readers for values as Debezium writes them into JSON, for Changes. The schema part of a record says what its values
 * mean; without one, the user's settings do. A value that neither explains is a fault.
 */
final class Encoded {
    static final String PLACEHOLDER = "__debezium_unavailable_value";
    private static final byte[] PLACEHOLDER_BYTES = PLACEHOLDER.getBytes(StandardCharsets.UTF_8);
    private static final Set<String> PLACEHOLDERS = Set.of(
            PLACEHOLDER,
            Base64.getEncoder().encodeToString(PLACEHOLDER_BYTES),
            UUID.nameUUIDFromBytes(PLACEHOLDER_BYTES).toString());
    // as milliseconds up to 2286, as microseconds up to April of 1970
    private static final long DOUBTFUL = 10_000_000_000_000L;
    private static final long DAY = 86_400_000_000L;
    private static final String DECIMAL = "org.apache.kafka.connect.data.Decimal";
    private static final String ISO_TIMESTAMP = "io.debezium.time.IsoTimestamp";
    private static final Texts WHOLE = Texts.of(DataTypes.LongType, null);
    private static final Set<String> DATES = Set.of("io.debezium.time.Date", "org.apache.kafka.connect.data.Date");

    private final ZoneId zone;
    private final String times;
    private final String decimals;

    /** `times` is millis, micros, nanos or empty; `decimals` is string, unscaled or empty. */
    Encoded(ZoneId zone, String times, String decimals) {
        this.zone = zone;
        this.times = times;
        this.decimals = decimals;
    }

    /** `meaning` is that of the object, or null. Unless `strict`, a value that was not sent is read as NULL. */
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

    /** Instead of an array that was not sent, Debezium sends the bytes of the placeholder. */
    private static Values array(ArrayType type, Values values) {
        boolean isNumeric = type.elementType() instanceof IntegralType || type.elementType() instanceof DateType;
        return !isNumeric ? values : record -> {
            int start = record.start();
            Object value = values.read(record);
            return value instanceof ArrayData data && isPlaceholder(data) ? unavailable(record, start) : value;
        };
    }

    private static boolean isPlaceholder(ArrayData data) {
        Object[] elements = data.array();
        boolean same = elements.length == PLACEHOLDER_BYTES.length;
        for (int i = 0; same && i < elements.length; i++) {
            same = elements[i] instanceof Number number && number.longValue() == PLACEHOLDER_BYTES[i];
        }
        return same;
    }

    private Values scalar(DataType type, Meaning meaning) {
        if (type instanceof DecimalType decimal) {
            return decimal(decimal, meaning);
        }
        Values plain = Scalars.of(type, zone);
        String connectType = meaning == null ? "" : meaning.type;
        return switch (type.typeName()) {
            case "timestamp", "timestamp_ntz" -> time(type, meaning, plain);
            case "date" -> date(type, meaning, plain);
            case "float" -> number(plain, Float.NaN, Float.POSITIVE_INFINITY, Float.NEGATIVE_INFINITY);
            case "double" -> number(plain, Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY);
            case "string" -> record -> isText(record) && !connectType.equals("bytes") ? plain.read(record)
                    : record.wrong(type);
            case "binary" -> {
                boolean isBytes = meaning == null || connectType.equals("bytes") && !meaning.name.equals(DECIMAL);
                yield record -> isBytes ? plain.read(record) : record.wrong(type);
            }
            default -> plain;
        };
    }

    private static boolean isText(Record record) {
        return record.parser.currentToken() == JsonToken.VALUE_STRING;
    }

    /** JSON cannot express these numbers, so Connect writes them as text. */
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

    /** {"scale": 2, "value": "bytes"}: from a column that declares no scale. */
    private static Object variable(Record record, DecimalType type, Decimals rule) throws IOException {
        JsonParser parser = record.parser;
        int start = record.start();
        Integer scale = null;
        byte[] bytes = null;
        boolean hasOtherFields = false;
        for (String name; (name = parser.nextFieldName()) != null; ) {
            JsonToken token = parser.nextToken();
            if (name.equals("scale") && scale == null && token == JsonToken.VALUE_NUMBER_INT) {
                scale = parser.getNumberType() == JsonParser.NumberType.INT ? parser.getIntValue() : null;
            } else if (name.equals("value") && bytes == null && token == JsonToken.VALUE_STRING) {
                bytes = bytes(parser);
            } else {
                hasOtherFields = true;
                record.skip();
            }
        }
        if (scale == null || bytes == null || hasOtherFields) {
            return record.refuse("wrong_type", " is not of type DECIMAL", start);
        }
        Object exact = rule.unscaled(bytes, scale);
        return exact == Texts.UNFIT ? record.refuse("out_of_range", " does not fit " + type.sql(), start) : exact;
    }

    /** Null if it is empty or not base64. */
    private static byte[] bytes(JsonParser parser) throws IOException {
        char[] text = parser.getTextCharacters();
        int from = parser.getTextOffset();
        return Bytes.read(text, from, from + parser.getTextLength()) instanceof byte[] decoded && decoded.length > 0
                ? decoded
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

    /** The current whole number as a Long; something else if a long cannot hold it. */
    private static Object number(Record record) throws IOException {
        char[] text = record.parser.getTextCharacters();
        int from = record.parser.getTextOffset();
        return WHOLE.read(text, from, from + record.parser.getTextLength());
    }

    /** Takes 2024-02-29T10:00:00Z as a time without a zone: Debezium's form where it writes times as text. */
    private static Object isoTime(Record record, DataType type, Texts rule) throws IOException {
        char[] text = record.parser.getTextCharacters();
        int from = record.parser.getTextOffset(), to = from + record.parser.getTextLength();
        return Scalars.settled(record, type, rule.read(text, from, to > from && text[to - 1] == 'Z' ? to - 1 : to));
    }

    /** Null if a value of this kind is not a point in time. */
    private String unit(String name) {
        return switch (name) {
            case "io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp" -> "millis";
            case "io.debezium.time.MicroTimestamp" -> "micros";
            case "io.debezium.time.NanoTimestamp" -> "nanos";
            case "" -> times.isEmpty() ? null : times; // a number in the database too: the user says its unit
            default -> null;
        };
    }

    private static Values date(DataType type, Meaning meaning, Values text) {
        boolean countsDays = meaning == null || DATES.contains(meaning.name);
        return record -> {
            JsonToken token = record.parser.currentToken();
            if (token == JsonToken.VALUE_STRING && record.parser.getTextLength() == 11) {
                return isoDate(record, type);
            }
            if (token != JsonToken.VALUE_NUMBER_INT || !countsDays) {
                return token == JsonToken.VALUE_NUMBER_INT ? record.wrong(type) : text.read(record);
            }
            boolean fits = number(record) instanceof Long day && Times.FIRST / DAY <= day
                    && day <= Times.LAST / DAY;
            return fits ? (Object) record.parser.getIntValue() : record.unfit(type);
        };
    }

    /** Takes 2024-02-29Z: Debezium's form where it writes times as text. */
    private static Object isoDate(Record record, DataType type) throws IOException {
        char[] text = record.parser.getTextCharacters();
        int from = record.parser.getTextOffset();
        Object days = text[from + 10] == 'Z' ? Times.date(text, from, from + 10) : Texts.WRONG;
        return Scalars.settled(record, type, days);
    }
}
