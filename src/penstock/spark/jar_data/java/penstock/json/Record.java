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
 * A record on its way through the parser. A fault of one value is kept, the first of them, and the rest is still read:
 * what is not JSON at all is said first. The latter ends the record, by an exception.
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

    /** `under` stands before every path: what is read is a part of something else. */
    Record(JsonParser parser, byte[] bytes, boolean rescue, Set<String> expected, String under) {
        this(parser, bytes, rescue, expected, under, false);
    }

    /** `deep`: fields of objects within the object are rescued too. */
    Record(JsonParser parser, byte[] bytes, boolean rescue, Set<String> expected, String under, boolean deep) {
        this.parser = parser;
        this.bytes = bytes;
        this.rescue = rescue;
        this.expected = expected;
        this.under = under;
        this.deep = deep;
    }

    /** The name of a field that no path begins with. */
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

    /** The parser would take them for a mark, or for a sign of UTF-16. */
    void refuseOtherEncodings() {
        if (isOtherEncoding()) {
            throw new Fault("malformed_json", "not JSON, at byte 0: " + Shown.of(bytes));
        }
    }

    boolean isOtherEncoding() {
        boolean marked = bytes.length >= 3 && bytes[0] == (byte) 0xEF && bytes[1] == (byte) 0xBB
                && bytes[2] == (byte) 0xBF;
        boolean zero = false;
        for (int i = 0; i < Math.min(bytes.length, 4); i++) {
            zero |= bytes[i] == 0;
        }
        return marked || zero;
    }

    /** To the start of the object that the whole text must be. */
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

    void refuseMore(String what) throws IOException {
        parser.finishToken();
        int end = (int) parser.currentLocation().getByteOffset();
        for (int i = end; i < bytes.length; i++) {
            if (bytes[i] != ' ' && bytes[i] != '\n' && bytes[i] != '\r' && bytes[i] != '\t') {
                throw new Fault(
                        "trailing_data",
                        "there is something behind the " + what + ": " + Shown.of(bytes, i, bytes.length));
            }
        }
    }

    /** The value is one, but of another type. */
    Object wrong(DataType type) throws IOException {
        return refuse("wrong_type", " is not of type " + named(type));
    }

    /** The value is of the kind of the type, which cannot hold it. */
    Object unfit(DataType type) throws IOException {
        return refuse("out_of_range", " does not fit " + named(type));
    }

    Object refuse(String reason, String what) throws IOException {
        return refuse(reason, what, start());
    }

    /** Of the value at which the parser stands, or whose last token it is: it began at `start`. */
    Object refuse(String reason, String what, int start) throws IOException {
        if (fault != null) {
            skip();
            return null;
        }
        JsonStreamContext place = parser.getParsingContext();
        String path = path(parser.currentToken().isStructStart() ? place.getParent() : place);
        fault = new Fault(reason, path + ": " + Shown.of(bytes, start, endOfValue()) + what);
        return null;
    }

    /** Where the parser stands: the path of the field. */
    String place() {
        JsonStreamContext place = parser.getParsingContext();
        return path(place.hasCurrentName() || place.inRoot() || place.inArray() ? place : place.getParent());
    }

    int start() {
        return (int) parser.currentTokenLocation().getByteOffset();
    }

    /** The value at which the parser stands, which is left at its last token. */
    byte[] slice() throws IOException {
        int start = start();
        return Arrays.copyOfRange(bytes, start, endOfValue());
    }

    /** The parser stands at the end of the object that lacks the field. */
    void missing(String name) {
        if (fault == null) {
            String path = path(parser.getParsingContext());
            fault = new Fault("missing_field", (path.isEmpty() ? name : path + "." + name) + " is missing or null");
        }
    }

    /** A field that holds no value, only null, {} or [], is no news: nobody could say of which type it is. */
    void unknown(String name, boolean top) throws IOException {
        boolean kept = rescue && (top || deep);
        JsonStreamContext place = parser.getParsingContext();
        String key = top || !kept ? name : path(parser.currentToken().isStructStart() ? place.getParent() : place);
        int start = start();
        String spot = top || expected.isEmpty() ? name : spot(place, name);
        if (skip() && unknown == null && quiet == 0 && !expected.contains(spot)) {
            unknown = name;
        }
        if (kept) {
            refuseHalves(key);
            rescued = rescued == null ? new StringBuilder("{\"") : rescued.append(",\"");
            rescued.append(JsonStringEncoder.getInstance().quoteAsString(key)).append("\":");
            rescued.append(new String(bytes, start, endOfToken() - start, StandardCharsets.UTF_8));
        }
    }

    /** Within the values of a map fields are not unknown: their places have no end. */
    void quiet(boolean on) {
        quiet += on ? 1 : -1;
    }

    /** The names that lead to a field, without the places in lists. */
    private String spot(JsonStreamContext place, String name) {
        StringBuilder names = new StringBuilder(name);
        JsonStreamContext outer = parser.currentToken().isStructStart() ? place.getParent() : place;
        while ((outer = outer.getParent()) != null) {
            if (outer.inObject()) {
                names.insert(0, outer.getCurrentName() + ".");
            }
        }
        return names.toString();
    }

    /** The value at which the parser stands, as it is written. */
    UTF8String written() throws IOException {
        return UTF8String.fromBytes(slice());
    }

    Fault twice() {
        return new Fault("duplicate_field", path(parser.getParsingContext()) + " is there twice");
    }

    /** A text without halves of characters, which no file could hold. */
    UTF8String text() throws IOException {
        String text = parser.getText();
        refuseHalves(text);
        return UTF8String.fromString(text);
    }

    void refuseHalves(String text) {
        int half = half(text);
        if (half >= 0) {
            throw new Fault("malformed_json", path(parser.getParsingContext()) + ": half of a character, \\u"
                    + Integer.toHexString(text.charAt(half)));
        }
    }

    static boolean hasHalves(String text) {
        return half(text) >= 0;
    }

    /** Where half of a character stands, or -1. */
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

    /** Over a value, to its last token: nowhere may a field be there twice. Whether it holds anything but nulls. */
    boolean skip() throws IOException {
        JsonToken token = parser.currentToken();
        boolean holds = false;
        if (token == JsonToken.START_OBJECT) {
            Set<String> names = new HashSet<>();
            for (String name; (name = parser.nextFieldName()) != null; ) {
                if (!names.add(name)) {
                    throw twice();
                }
                parser.nextToken();
                holds |= skip();
            }
            return holds;
        }
        if (token == JsonToken.START_ARRAY) {
            while (parser.nextToken() != JsonToken.END_ARRAY) {
                holds |= skip();
            }
            return holds;
        }
        return token != JsonToken.VALUE_NULL;
    }

    private String path(JsonStreamContext place) {
        return under + written(place);
    }

    /** Without recursion: it is asked too when the stack is full. */
    private String written(JsonStreamContext place) {
        ArrayDeque<JsonStreamContext> steps = new ArrayDeque<>();
        for (; place != null && !place.inRoot(); place = place.getParent()) {
            if (place.getParent().inRoot() && hidden.equals(place.getCurrentName())) {
                break;
            }
            steps.push(place);
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
