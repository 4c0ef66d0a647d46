package penstock.json;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.time.ZoneId;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;

/** Readers for scalar values of JSON, for Values and Encoded. */
final class Scalars {
    private Scalars() {}

    static Values of(DataType type, ZoneId zone) {
        return switch (type.typeName()) {
            case "boolean" -> record -> bool(record, type);
            case "string" -> record -> record.parser.currentToken().isStructStart() ? record.wrong(type)
                    : record.text();
            case "byte", "short", "integer", "long", "float", "double" -> numbers(type, Texts.of(type, zone));
            case "binary", "date", "timestamp", "timestamp_ntz" -> texts(type, Texts.of(type, zone));
            default -> {
                if (!(type instanceof DecimalType)) {
                    throw new IllegalArgumentException("no JSON value is of type " + type.sql());
                }
                yield decimals(type, Texts.of(type, zone));
            }
        };
    }

    private static Object bool(Record record, DataType type) throws IOException {
        JsonToken token = record.parser.currentToken();
        return token.isBoolean() ? (Object) (token == JsonToken.VALUE_TRUE) : record.wrong(type);
    }

    private static Values numbers(DataType type, Texts rule) {
        return record -> record.parser.currentToken().isNumeric() ? read(record, type, rule) : record.wrong(type);
    }

    private static Values texts(DataType type, Texts rule) {
        return record ->
                record.parser.currentToken() == JsonToken.VALUE_STRING ? read(record, type, rule) : record.wrong(type);
    }

    /** Reads numbers, and texts too, because many systems send decimals as text. */
    private static Values decimals(DataType type, Texts rule) {
        return record -> {
            JsonToken token = record.parser.currentToken();
            return token.isNumeric() || token == JsonToken.VALUE_STRING ? read(record, type, rule) : record.wrong(type);
        };
    }

    private static Object read(Record record, DataType type, Texts rule) throws IOException {
        JsonParser parser = record.parser;
        char[] text = parser.getTextCharacters();
        int from = parser.getTextOffset();
        return settled(record, type, rule.read(text, from, from + parser.getTextLength()));
    }

    /** The value that a rule returned, or null after noting in the record that the rule refused it. */
    static Object settled(Record record, DataType type, Object value) throws IOException {
        return value == Texts.WRONG ? record.wrong(type) : value == Texts.UNFIT ? record.unfit(type) : value;
    }
}
