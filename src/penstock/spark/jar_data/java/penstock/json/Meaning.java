package penstock.json;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.types.DataTypes;

/**
 * What Kafka Connect's schema says of a value, for Encoded: "int64" alone is a number, with a name it is a time, and
 * the name says in which unit.
 */
final class Meaning {
    private static final Texts WHOLE = Texts.of(DataTypes.IntegerType, null);

    String type = "";
    String name = "";
    /** Of a decimal; null if it is not given, or not a number. */
    Integer scale;
    Meaning element;
    final Map<String, Meaning> fields = new HashMap<>();

    /** The meaning of a field of the object; null if there is none. */
    static Meaning of(Meaning object, String field) {
        return object == null ? null : object.fields.get(field);
    }

    static Meaning read(byte[] schema) throws IOException {
        try (JsonParser parser = Decoder.JSON.createParser(schema)) {
            return parser.nextToken() == JsonToken.START_OBJECT ? object(parser).meaning : null;
        }
    }

    /** A schema, and the name of the field whose schema it is. */
    private record Named(Meaning meaning, String field) {}

    private static Named object(JsonParser parser) throws IOException {
        Meaning meaning = new Meaning();
        String field = null;
        for (String key; (key = parser.nextFieldName()) != null; ) {
            JsonToken token = parser.nextToken();
            if (token == JsonToken.VALUE_STRING) {
                switch (key) {
                    case "type" -> meaning.type = parser.getText();
                    case "name" -> meaning.name = parser.getText();
                    case "field" -> field = parser.getText();
                    default -> {}
                }
            } else if (token == JsonToken.START_ARRAY && key.equals("fields")) {
                while (parser.nextToken() == JsonToken.START_OBJECT) {
                    Named named = object(parser);
                    meaning.fields.put(named.field, named.meaning);
                }
            } else if (token == JsonToken.START_OBJECT && (key.equals("items") || key.equals("values"))) {
                meaning.element = object(parser).meaning;
            } else if (token == JsonToken.START_OBJECT && key.equals("parameters")) {
                meaning.scale = scale(parser);
            } else {
                parser.skipChildren();
            }
        }
        return new Named(meaning, field);
    }

    private static Integer scale(JsonParser parser) throws IOException {
        Integer scale = null;
        for (String key; (key = parser.nextFieldName()) != null; ) {
            JsonToken token = parser.nextToken();
            if (key.equals("scale") && token.isScalarValue()) {
                char[] text = parser.getTextCharacters();
                int from = parser.getTextOffset();
                scale = WHOLE.read(text, from, from + parser.getTextLength()) instanceof Integer number ? number : null;
            }
            parser.skipChildren();
        }
        return scale;
    }
}
