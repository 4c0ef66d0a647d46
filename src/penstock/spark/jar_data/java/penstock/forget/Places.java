package penstock.forget;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadConstraints;
import java.io.IOException;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.function.Predicate;

/**
 * The values at a path of a JSON document, in their canonical text. A document that is no JSON to its very end is an
 * IOException, wherever the fault is: what it holds cannot be told by a path then. Text that holds JSON is gone into.
 *
 * A step is `.name`, `[3]` or `[*]`.
 */
final class Places implements Serializable {
    private static final int DEEPEST = 1000;
    private static final JsonFactory JSON = JsonFactory.builder()
            .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
            .disable(JsonFactory.Feature.FAIL_ON_SYMBOL_HASH_OVERFLOW)
            .streamReadConstraints(StreamReadConstraints.builder().maxNestingDepth(DEEPEST)
                    .maxStringLength(Integer.MAX_VALUE).maxNumberLength(Integer.MAX_VALUE)
                    .maxNameLength(Integer.MAX_VALUE).build())
            .build();

    private final String[] steps;

    Places(String[] steps) {
        this.steps = steps;
    }

    static JsonParser parser(byte[] document) throws IOException {
        return JSON.createParser(document);
    }

    boolean any(byte[] document, Predicate<String> wanted) throws IOException {
        try (JsonParser parser = JSON.createParser(document)) {
            return whole(parser, 0, wanted);
        }
    }

    private boolean whole(JsonParser parser, int step, Predicate<String> wanted) throws IOException {
        if (parser.nextToken() == null) {
            throw new IOException("there is nothing");
        }
        boolean found = walk(parser, step, wanted);
        if (parser.nextToken() != null) {
            throw new IOException("there is more behind the document");
        }
        return found;
    }

    /** Goes to the end of the value that the parser stands at, also if it has been found: the rest may be no JSON. */
    private boolean walk(JsonParser parser, int step, Predicate<String> wanted) throws IOException {
        if (step == steps.length) {
            return named(parser, wanted);
        }
        boolean found = false;
        switch (parser.currentToken()) {
            case START_OBJECT:
                while (parser.nextToken() != JsonToken.END_OBJECT) {
                    boolean here = steps[step].equals("." + parser.currentName());
                    parser.nextToken();
                    found |= here && walk(parser, step + 1, wanted);
                    parser.skipChildren();
                }
                return found;
            case START_ARRAY:
                for (int index = 0; parser.nextToken() != JsonToken.END_ARRAY; index++) {
                    boolean here = steps[step].equals("[*]") || steps[step].equals("[" + index + "]");
                    found |= here && walk(parser, step + 1, wanted);
                    parser.skipChildren();
                }
                return found;
            case VALUE_STRING:
                return within(parser.getText(), step, wanted);
            default:
                return false;
        }
    }

    /** Text that may hold a document of its own. */
    private boolean within(String text, int step, Predicate<String> wanted) throws IOException {
        String trimmed = text.trim();
        if (!trimmed.startsWith("{") && !trimmed.startsWith("[")) {
            return false;
        }
        try (JsonParser inner = JSON.createParser(trimmed.getBytes(StandardCharsets.UTF_8))) {
            return whole(inner, step, wanted);
        }
    }

    private static boolean named(JsonParser parser, Predicate<String> wanted) throws IOException {
        if (parser.currentToken() != JsonToken.START_ARRAY) {
            return isWanted(parser, wanted);
        }
        boolean found = false;
        while (parser.nextToken() != JsonToken.END_ARRAY) {
            found |= isWanted(parser, wanted);
            parser.skipChildren();
        }
        return found;
    }

    private static boolean isWanted(JsonParser parser, Predicate<String> wanted) throws IOException {
        switch (parser.currentToken()) {
            case VALUE_STRING:
            case VALUE_TRUE:
            case VALUE_FALSE:
                return wanted.test(parser.getText());
            case VALUE_NUMBER_INT:
            case VALUE_NUMBER_FLOAT:
                return wanted.test(Canonical.number(parser.getText()));
            default:
                return false;
        }
    }
}
