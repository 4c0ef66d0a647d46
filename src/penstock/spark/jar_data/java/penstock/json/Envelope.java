package penstock.json;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Reads one change as Debezium writes it, with or without the schema that Connect adds to it, for Changes. */
final class Envelope {
    private static final Set<String> CHANGES = Set.of("c", "r", "u");

    private final Changes changes;
    private final boolean rescue;
    private final Map<String, String> source = new HashMap<>();
    private final Map<String, String> times = new HashMap<>();
    private Changes.Readers readers;
    private Record record;
    private boolean hasAfter;
    private byte[] before;
    private String op;

    Envelope(Changes changes, boolean rescue) {
        this.changes = changes;
        this.rescue = rescue;
        readers = changes.plain();
    }

    /** What the columns were read from: it has their fault, and the fields that the schema does not name. */
    Record record() {
        return record;
    }

    String op() {
        return op;
    }

    void read(byte[] bytes, Object[] row) throws IOException {
        try (JsonParser parser = Decoder.JSON.createParser(bytes)) {
            record = new Record(parser, bytes, rescue, Set.of());
            record.openObject();
            byte[] payload = fields(row, true);
            record.refuseMore("object");
            if (payload != null) { // it came before its schema
                readPayload(payload, row);
            }
        }
    }

    private void readPayload(byte[] payload, Object[] row) throws IOException {
        try (JsonParser parser = Decoder.JSON.createParser(payload)) {
            record = new Record(parser, payload, rescue, Set.of());
            record.openObject();
            fields(row, false);
        }
    }

    /** Reads the object at whose start the parser is. Returns the payload if that has to wait for its schema. */
    private byte[] fields(Object[] row, boolean top) throws IOException {
        Set<String> names = new HashSet<>();
        byte[] waiting = null;
        for (String name; (name = record.parser.nextFieldName()) != null; ) {
            JsonToken token = record.parser.nextToken();
            if (!names.add(name)) {
                throw record.twice();
            }
            if (top && name.equals("schema")) {
                readers = token == JsonToken.VALUE_NULL ? changes.plain() : changes.readers(schema(record));
            } else if (top && name.equals("payload")) {
                if (token != JsonToken.START_OBJECT) {
                    record.skip();
                    throw new Fault("no_value", "payload is not an object");
                }
                record.hide(name);
                if (names.contains("schema")) {
                    fields(row, false);
                } else {
                    waiting = record.slice();
                }
            } else {
                field(name, token, row);
            }
        }
        return waiting;
    }

    private void field(String name, JsonToken token, Object[] row) throws IOException {
        switch (name) {
            case "before" -> before = isObject(name, token) ? record.slice() : null;
            case "after" -> {
                hasAfter = isObject(name, token);
                if (hasAfter) {
                    readers.whole().read(record, row, true);
                }
            }
            case "source" -> {
                if (isObject(name, token)) {
                    readSource();
                }
            }
            case "op" -> op = token == JsonToken.VALUE_STRING ? record.parser.getText() : null;
            case "ts_ms", "ts_us" -> keep(times, name, token);
            default -> {}
        }
        if (record.parser.currentToken().isStructStart()) {
            record.skip();
        }
    }

    private boolean isObject(String name, JsonToken token) throws IOException {
        if (token == JsonToken.START_OBJECT || token == JsonToken.VALUE_NULL) {
            return token == JsonToken.START_OBJECT;
        }
        record.skip();
        throw new Fault("wrong_type", name + " is not an object");
    }

    private void readSource() throws IOException {
        Set<String> names = new HashSet<>();
        for (String name; (name = record.parser.nextFieldName()) != null; ) {
            JsonToken token = record.parser.nextToken();
            if (!names.add(name)) {
                throw record.twice();
            }
            if (Position.NEEDED.contains(name)) {
                keep(source, name, token);
            }
            record.skip();
        }
    }

    private void keep(Map<String, String> texts, String name, JsonToken token) throws IOException {
        if (token.isScalarValue() && token != JsonToken.VALUE_NULL) {
            texts.put(name, record.parser.getText());
        }
    }

    static ByteBuffer schema(Record record) throws IOException {
        int start = record.start();
        record.parser.skipChildren();
        record.parser.finishToken();
        int end = (int) record.parser.currentLocation().getByteOffset();
        return ByteBuffer.wrap(record.bytes, start, end - start);
    }

    /** Completes the columns of the change in `row`, whatever the parse left there. A Fault says why it cannot. */
    void settle(Object[] row, byte[] key) throws IOException {
        if (op == null) {
            throw new Fault(
                    "missing_field",
                    "op is missing: that is no change as Debezium writes it (after its transform "
                            + "ExtractNewRecordState write json instead of debezium)");
        }
        if (CHANGES.contains(op)) {
            if (!hasAfter) {
                throw new Fault("missing_field", "after is missing or null");
            }
            if (record.fault() != null) {
                throw record.fault();
            }
            return;
        }
        Arrays.fill(row, 0, changes.width(), null);
        if (op.equals("d")) {
            readDeleted(row, key);
        } else if (op.equals("t")) {
            record = new Record(record.parser, record.bytes, false, Set.of());
        } else {
            throw new Fault("unknown_operation", "op: " + Shown.of(op, 40) + " is none of c, r, u, d and t");
        }
    }

    /**
     * PostgreSQL sends only the key of a deleted row, and Debezium fills its other NOT NULL columns with zeros and
     * empty texts. So only the columns in the record's key are known, unless the user says that the table sends whole
     * rows.
     */
    private void readDeleted(Object[] row, byte[] key) throws IOException {
        if (before != null && changes.trusts(source.getOrDefault("connector", ""))) {
            readPart(before, "before.", readers.known(), row, rescue);
            if (anyOf(row)) {
                return;
            }
        }
        if (key != null) {
            readKey(key, row);
            if (anyOf(row)) {
                return;
            }
        }
        throw new Fault(
                "no_key",
                "of the deleted row nothing is known: the key of the record has no column of the schema"
                        + (before == null
                                ? ""
                                : ", and before is only whole with REPLICA IDENTITY FULL (then write before: full)"));
    }

    private void readPart(byte[] part, String under, Values.Fields fields, Object[] row, boolean rescueOthers)
            throws IOException {
        try (JsonParser parser = Decoder.JSON.createParser(part)) {
            record = new Record(parser, part, rescueOthers, Set.of(), under);
            record.openObject();
            fields.read(record, row, true);
        }
        if (record.fault() != null) {
            throw record.fault();
        }
    }

    private void readKey(byte[] key, Object[] row) throws IOException {
        try (JsonParser parser = Decoder.JSON.createParser(key)) {
            Record keyRecord = new Record(parser, key, false, Set.of(), "key.");
            if (keyRecord.isOtherEncoding() || parser.nextToken() != JsonToken.START_OBJECT) {
                return;
            }
            byte[] payload = key;
            Values.Fields fields = changes.plain().known();
            for (String name; (name = parser.nextFieldName()) != null; ) {
                JsonToken token = parser.nextToken();
                if (name.equals("schema") && token == JsonToken.START_OBJECT) {
                    fields = changes.keys(schema(keyRecord));
                } else if (name.equals("payload") && token == JsonToken.START_OBJECT) {
                    payload = keyRecord.slice();
                } else {
                    keyRecord.skip();
                }
            }
            readPart(payload, "key.", fields, row, false);
        } catch (JsonProcessingException notJson) {
            Arrays.fill(row, 0, changes.width(), null);
        }
    }

    private boolean anyOf(Object[] row) {
        for (int i = 0; i < changes.width(); i++) {
            if (row[i] != null) {
                return true;
            }
        }
        return false;
    }

    /** When the change was made, in microseconds. */
    long changedAt() {
        for (Map<String, String> fields : List.of(source, times)) {
            long micros = whole(fields.get("ts_us"));
            if (micros != 0 && Times.FIRST <= micros && micros <= Times.LAST) {
                return micros;
            }
            long millis = whole(fields.get("ts_ms"));
            if (millis != 0 && Times.FIRST / 1000 <= millis && millis <= Times.LAST / 1000) {
                return millis * 1000;
            }
        }
        throw new Fault("missing_field", "source.ts_ms is missing: it says when the change was made");
    }

    private static long whole(String text) {
        try {
            return text == null ? 0 : Long.parseLong(text);
        } catch (NumberFormatException notANumber) {
            return 0;
        }
    }

    String position(long micros) {
        return Position.of(source, op, micros);
    }
}
