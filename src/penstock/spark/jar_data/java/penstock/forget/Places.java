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
 * Tests the values at a path of a JSON document, in their canonical text, for Subject. A document that is not JSON to
 * its very end raises an IOException, wherever the fault is, because a path then cannot say what it holds. Text that
 * holds JSON is parsed as well.
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
        boolean matched = walk(parser, step, wanted);
        if (parser.nextToken() != null) {
            throw new IOException("there is more behind the document");
        }
        return matched;
    }

    /** Reads the current value to its end even after a match, because the rest may not be JSON. */
    private boolean walk(JsonParser parser, int step, Predicate<String> wanted) throws IOException {
        if (step == steps.length) {
            return named(parser, wanted);
        }
        boolean matched = false;
        switch (parser.currentToken()) {
            case START_OBJECT:
                while (parser.nextToken() != JsonToken.END_OBJECT) {
                    boolean isOnPath = steps[step].equals("." + parser.currentName());
                    parser.nextToken();
                    matched |= isOnPath && walk(parser, step + 1, wanted);
                    parser.skipChildren();
                }
                return matched;
            case START_ARRAY:
                for (int index = 0; parser.nextToken() != JsonToken.END_ARRAY; index++) {
                    boolean isOnPath = steps[step].equals("[*]") || steps[step].equals("[" + index + "]");
                    matched |= isOnPath && walk(parser, step + 1, wanted);
                    parser.skipChildren();
                }
                return matched;
            case VALUE_STRING:
                return within(parser.getText(), step, wanted);
            default:
                return false;
        }
    }

    /** Text that may itself hold a JSON document. */
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
        boolean matched = false;
        while (parser.nextToken() != JsonToken.END_ARRAY) {
            matched |= isWanted(parser, wanted);
            parser.skipChildren();
        }
        return matched;
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
