package penstock.json;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonStreamContext;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.io.JsonStringEncoder;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * One JSON record while the parser reads it, for Decoder, Changes and their readers of values. It keeps the first fault
 * of a value, and the rest is still read: that the record is not JSON at all takes precedence. Such a fault ends the
 * record by an exception.
 */
final class Record {
    final JsonParser parser;
    final byte[] bytes;
    private final boolean rescue;
    private final Set<String> expected;
    private final String under;
    private final boolean deep;
    private String hidden = "";
    private Fault fault;
    private int quiet;
    private String unknown;
    private StringBuilder rescued;

    Record(JsonParser parser, byte[] bytes, boolean rescue, Set<String> expected) {
        this(parser, bytes, rescue, expected, "");
    }

    /** `under` precedes every path: what is read is a part of another document. */
    Record(JsonParser parser, byte[] bytes, boolean rescue, Set<String> expected, String under) {
        this(parser, bytes, rescue, expected, under, false);
    }

    /** `deep`: fields of nested objects are rescued too. */
    Record(JsonParser parser, byte[] bytes, boolean rescue, Set<String> expected, String under, boolean deep) {
        this.parser = parser;
        this.bytes = bytes;
        this.rescue = rescue;
        this.expected = expected;
        this.under = under;
        this.deep = deep;
    }

    /** Sets the name of a field that paths leave out at their beginning. */
    void hide(String name) {
        hidden = name;
    }

    Fault fault() {
        return fault;
    }

    String unknown() {
        return unknown;
    }

    UTF8String rescued() {
        return rescued == null ? null : UTF8String.fromString(rescued.append('}').toString());
    }

    /** The parser would skip a byte order mark, and take a zero byte as a sign of UTF-16. */
    void refuseOtherEncodings() {
        if (isOtherEncoding()) {
            throw new Fault("malformed_json", "not JSON, at byte 0: " + Shown.of(bytes));
        }
    }

    boolean isOtherEncoding() {
        boolean hasMark = bytes.length >= 3 && bytes[0] == (byte) 0xEF && bytes[1] == (byte) 0xBB
                && bytes[2] == (byte) 0xBF;
        boolean hasZero = false;
        for (int i = 0; i < Math.min(bytes.length, 4); i++) {
            hasZero |= bytes[i] == 0;
        }
        return hasMark || hasZero;
    }

    /** Moves to the start of the object that the whole text must be. */
    void openObject() throws IOException {
        refuseOtherEncodings();
        JsonToken first = parser.nextToken();
        if (first == null) {
            throw new Fault("empty_value", "there is no value");
        }
        if (first != JsonToken.START_OBJECT) {
            skip();
            refuseMore("value");
            throw new Fault("not_an_object", "a JSON object is needed, not " + Shown.of(bytes));
        }
    }

    void refuseMore(String kind) throws IOException {
        parser.finishToken();
        int end = (int) parser.currentLocation().getByteOffset();
        for (int i = end; i < bytes.length; i++) {
            if (bytes[i] != ' ' && bytes[i] != '\n' && bytes[i] != '\r' && bytes[i] != '\t') {
                throw new Fault(
                        "trailing_data",
                        "there is something behind the " + kind + ": " + Shown.of(bytes, i, bytes.length));
            }
        }
    }

    /** Refuses a value of another type. */
    Object wrong(DataType type) throws IOException {
        return refuse("wrong_type", " is not of type " + named(type));
    }

    /** Refuses a value of the type's kind that the type cannot hold. */
    Object unfit(DataType type) throws IOException {
        return refuse("out_of_range", " does not fit " + named(type));
    }

    Object refuse(String reason, String message) throws IOException {
        return refuse(reason, message, start());
    }

    /** Refuses the current value, or the value that began at `start` and whose last token is current. */
    Object refuse(String reason, String message, int start) throws IOException {
        if (fault != null) {
            skip();
            return null;
        }
        JsonStreamContext context = parser.getParsingContext();
        String path = path(parser.currentToken().isStructStart() ? context.getParent() : context);
        fault = new Fault(reason, path + ": " + Shown.of(bytes, start, endOfValue()) + message);
        return null;
    }

    /** The path of the current field. */
    String place() {
        JsonStreamContext context = parser.getParsingContext();
        return path(context.hasCurrentName() || context.inRoot() || context.inArray() ? context : context.getParent());
    }

    int start() {
        return (int) parser.currentTokenLocation().getByteOffset();
    }

    /** The bytes of the current value; leaves the parser at its last token. */
    byte[] slice() throws IOException {
        int start = start();
        return Arrays.copyOfRange(bytes, start, endOfValue());
    }

    /** Called at the end of the object that lacks the field. */
    void missing(String name) {
        if (fault == null) {
            String path = path(parser.getParsingContext());
            fault = new Fault("missing_field", (path.isEmpty() ? name : path + "." + name) + " is missing or null");
        }
    }

    /**
     * Records a field outside the schema; one that holds only null, {} or [] is not reported, as its type is unknown.
     */
    void unknown(String name, boolean top) throws IOException {
        boolean rescues = rescue && (top || deep);
        JsonStreamContext context = parser.getParsingContext();
        String key =
                top || !rescues ? name : path(parser.currentToken().isStructStart() ? context.getParent() : context);
        int start = start();
        String fieldPath = top || expected.isEmpty() ? name : spot(context, name);
        if (skip() && unknown == null && quiet == 0 && !expected.contains(fieldPath)) {
            unknown = name;
        }
        if (rescues) {
            refuseHalves(key);
            rescued = rescued == null ? new StringBuilder("{\"") : rescued.append(",\"");
            rescued.append(JsonStringEncoder.getInstance().quoteAsString(key)).append("\":");
            rescued.append(new String(bytes, start, endOfToken() - start, StandardCharsets.UTF_8));
        }
    }

    /** Within the values of a map, unknown fields are not reported: the number of their paths has no limit. */
    void quiet(boolean on) {
        quiet += on ? 1 : -1;
    }

    /** The names that lead to a field, without the indexes of lists. */
    private String spot(JsonStreamContext context, String name) {
        StringBuilder names = new StringBuilder(name);
        JsonStreamContext outer = parser.currentToken().isStructStart() ? context.getParent() : context;
        while ((outer = outer.getParent()) != null) {
            if (outer.inObject()) {
                names.insert(0, outer.getCurrentName() + ".");
            }
        }
        return names.toString();
    }

    /** The current value exactly as it is written. */
    UTF8String written() throws IOException {
        return UTF8String.fromBytes(slice());
    }

    Fault twice() {
        return new Fault("duplicate_field", path(parser.getParsingContext()) + " is there twice");
    }

    /** The current text, which must not contain half of a surrogate pair: no file could hold it. */
    UTF8String text() throws IOException {
        String text = parser.getText();
        refuseHalves(text);
        return UTF8String.fromString(text);
    }

    void refuseHalves(String text) {
        int index = half(text);
        if (index >= 0) {
            throw new Fault("malformed_json", path(parser.getParsingContext()) + ": half of a character, \\u"
                    + Integer.toHexString(text.charAt(index)));
        }
    }

    static boolean hasHalves(String text) {
        return half(text) >= 0;
    }

    /** The index of half a surrogate pair, or -1. */
    private static int half(String text) {
        for (int i = 0; i < text.length(); i++) {
            if (Character.isSurrogate(text.charAt(i))) {
                if (i + 1 == text.length() || !Character.isSurrogatePair(text.charAt(i), text.charAt(i + 1))) {
                    return i;
                }
                i++;
            }
        }
        return -1;
    }

    private int endOfValue() throws IOException {
        skip();
        return endOfToken();
    }

    private int endOfToken() throws IOException {
        parser.finishToken();
        return (int) parser.currentLocation().getByteOffset();
    }

    /**
     * Skips a value to its last token, and refuses repeated fields in it. Returns whether it holds anything but nulls.
     */
    boolean skip() throws IOException {
        JsonToken token = parser.currentToken();
        boolean hasValue = false;
        if (token == JsonToken.START_OBJECT) {
            Set<String> names = new HashSet<>();
            for (String name; (name = parser.nextFieldName()) != null; ) {
                if (!names.add(name)) {
                    throw twice();
                }
                parser.nextToken();
                hasValue |= skip();
            }
            return hasValue;
        }
        if (token == JsonToken.START_ARRAY) {
            while (parser.nextToken() != JsonToken.END_ARRAY) {
                hasValue |= skip();
            }
            return hasValue;
        }
        return token != JsonToken.VALUE_NULL;
    }

    private String path(JsonStreamContext context) {
        return under + written(context);
    }

    /** Without recursion, because it is also called when the stack is full. */
    private String written(JsonStreamContext context) {
        ArrayDeque<JsonStreamContext> steps = new ArrayDeque<>();
        for (; context != null && !context.inRoot(); context = context.getParent()) {
            if (context.getParent().inRoot() && hidden.equals(context.getCurrentName())) {
                break;
            }
            steps.push(context);
        }
        StringBuilder path = new StringBuilder();
        for (JsonStreamContext step : steps) {
            if (step.inArray()) {
                path.append('[').append(step.getCurrentIndex()).append(']');
            } else {
                path.append(path.isEmpty() ? "" : ".").append(step.getCurrentName());
            }
        }
        return path.toString();
    }

    private static String named(DataType type) {
        return type.sql().split("<")[0];
    }
}
