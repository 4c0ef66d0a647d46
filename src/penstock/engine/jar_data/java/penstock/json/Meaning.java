package penstock.json;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;

/** What Kafka Connect's schema says of a value: "int64" alone is a number, with a name it is a time, and of which unit. */
final class Meaning {
  String type = "";
  String name = "";
  int scale;
  Meaning element;
  final Map<String, Meaning> fields = new HashMap<>();

  /** Null if nothing is said of it. */
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
    Meaning found = new Meaning();
    String field = null;
    for (String key; (key = parser.nextFieldName()) != null; ) {
      JsonToken token = parser.nextToken();
      if (token == JsonToken.VALUE_STRING) {
        switch (key) {
          case "type" -> found.type = parser.getText();
          case "name" -> found.name = parser.getText();
          case "field" -> field = parser.getText();
          default -> { }
        }
      } else if (token == JsonToken.START_ARRAY && key.equals("fields")) {
        while (parser.nextToken() == JsonToken.START_OBJECT) {
          Named one = object(parser);
          found.fields.put(one.field, one.meaning);
        }
      } else if (token == JsonToken.START_OBJECT && (key.equals("items") || key.equals("values"))) {
        found.element = object(parser).meaning;
      } else if (token == JsonToken.START_OBJECT && key.equals("parameters")) {
        found.scale = scale(parser);
      } else {
        parser.skipChildren();
      }
    }
    return new Named(found, field);
  }

  private static int scale(JsonParser parser) throws IOException {
    int scale = 0;
    for (String key; (key = parser.nextFieldName()) != null; ) {
      parser.nextToken();
      if (key.equals("scale")) {
        scale = parser.getValueAsInt();
      }
      parser.skipChildren();
    }
    return scale;
  }
}
