package penstock.forget;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.math.BigDecimal;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The places where names occur in one file, collected for Search. In text a name counts as a word of its own, however
 * it is written; text that holds JSON is parsed, so that its numbers are distinguished from text. The rules are those
 * of erasure/text_search.py.
 */
final class Sightings {
    private static final int MOST = 500, AROUND = 120, MOST_EXAMINED = 10_000;
    private static final ObjectMapper JSON = new ObjectMapper();
    /** Digits within these are part of something else: dates, times, numbers with a fraction, addresses, UUIDs. */
    static final Pattern NUMBERS = Pattern.compile(
            "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
                    + "|\\d{4}-\\d{2}-\\d{2}(?:[T ]\\d{2}:\\d{2}(?::\\d{2}(?:[.,]\\d+)?)?(?:Z|[+-]\\d{2}:?\\d{2})?)?"
                    + "|\\d{1,2}:\\d{2}(?::\\d{2}(?:[.,]\\d+)?)?|\\d+(?:\\.\\d+)+");

    /** Encoders of base64 break long lines, Spark's own after 76 characters. */
    private static final Pattern BREAK = Pattern.compile("[ \\t]*[\\r\\n]+[ \\t]*");

    private final Name[] names;
    private final Automaton filter;
    private final List<byte[]> patterns = new ArrayList<>();
    private final List<Integer> owners = new ArrayList<>();
    private final List<String> kinds = new ArrayList<>();
    private final Map<List<Object>, Long> seen = new LinkedHashMap<>();
    private final Map<Long, List<Integer>> whole = new LinkedHashMap<>();
    private final List<byte[]> examined = new ArrayList<>();
    private final List<byte[]> bounds = new ArrayList<>();
    private boolean numbers;
    private String column = "";

    Sightings(Name[] names) {
        this.names = names;
        for (int index = 0; index < names.length; index++) {
            for (var form : names[index].forms.entrySet()) {
                add(form.getKey().getBytes(StandardCharsets.UTF_8), index, form.getValue());
            }
            if (names[index].value.length() >= 4) {
                add(names[index].value.getBytes(StandardCharsets.UTF_16LE), index, Name.UTF16);
                add(names[index].value.getBytes(StandardCharsets.UTF_16BE), index, Name.UTF16);
            }
            BigDecimal number = names[index].number;
            if (number != null) {
                numbers = true;
                if (number.scale() <= 0 && number.precision() < 19) {
                    whole.computeIfAbsent(number.longValue(), key -> new ArrayList<>()).add(index);
                }
            }
        }
        filter = new Automaton(patterns);
    }

    private void add(byte[] pattern, int owner, String kind) {
        patterns.add(pattern);
        owners.add(owner);
        kinds.add(kind);
    }

    void in(String place) {
        column = place;
        examined.clear();
    }

    void number(long value) {
        List<Integer> indexes = numbers ? whole.get(value) : null;
        if (indexes != null) {
            indexes.forEach(index -> seen(index, "", "number", true, "", 0));
        }
    }

    void number(BigDecimal value) {
        number(value, "");
    }

    void number(double value) {
        if (numbers && !Double.isNaN(value) && !Double.isInfinite(value)) {
            number(new BigDecimal(Double.toString(value)), "");
        }
    }

    private void number(BigDecimal value, String path) {
        for (int index = 0; numbers && index < names.length; index++) {
            if (names[index].number != null && names[index].number.compareTo(value) == 0) {
                seen(index, path, "number", true, "", 0);
            }
        }
    }

    /** Searches a value that is text or bytes. */
    void value(byte[] value) {
        boolean escaped = has(value, '\\') || has(value, '%') || has(value, '\n') || has(value, '\r');
        boolean candidate = filter.any(value);
        if (!escaped && !candidate) {
            return;
        }
        if (candidate && examined.size() < MOST_EXAMINED) {
            examined.add(value);
        }
        utf16(value);
        boolean valid = UTF8String.fromBytes(value).isValid();
        text(new String(value, StandardCharsets.UTF_8));
        if (!valid) {
            text(new String(value, StandardCharsets.ISO_8859_1));
        }
    }

    private static boolean has(byte[] value, char character) {
        for (byte current : value) {
            if (current == character) {
                return true;
            }
        }
        return false;
    }

    private void utf16(byte[] value) {
        filter.run(0, value, value.length, 0, (pattern, end) -> {
            if (kinds.get(pattern).equals(Name.UTF16)) {
                seen(owners.get(pattern), "", Name.UTF16, false, "", 0);
            }
        });
    }

    /**
     * Searches a bound of the column's values, as statistics hold it: the beginning of a value, whose last byte may be
     * one higher. Where that value itself was examined, the bound adds nothing.
     */
    void bound(byte[] value) {
        if (!filter.any(value)) {
            return;
        }
        bounds.add(value);
        for (byte[] earlier : examined) {
            if (earlier.length >= value.length - 1
                    && Arrays.equals(earlier, 0, value.length - 1, value, 0, value.length - 1)) {
                return;
            }
        }
        value(value);
    }

    /** Searches what follows the pages of a Parquet file, except the bounds, which were searched already. */
    void footer(byte[] content) {
        byte[] rest = content.clone();
        for (byte[] bound : bounds) {
            for (int start = 0; start + bound.length <= rest.length; start++) {
                if (Arrays.equals(rest, start, start + bound.length, bound, 0, bound.length)) {
                    Arrays.fill(rest, start, start + bound.length, (byte) 0);
                }
            }
        }
        bytes(rest, rest.length, Integer.MAX_VALUE);
    }

    /** Searches text as a file or a value holds it. */
    void text(String text) {
        if (!json(text, "")) {
            flat(text, "");
        }
    }

    /** False if the text is not a JSON object or array. */
    private boolean json(String text, String path) {
        String trimmed = text.strip();
        if (!trimmed.startsWith("{") && !trimmed.startsWith("[")) {
            return false;
        }
        var leaves = new ArrayList<String[]>();
        try (JsonParser parser = Places.parser(trimmed.getBytes(StandardCharsets.UTF_8))) {
            parser.nextToken();
            walk(parser, path.isEmpty() ? "$" : path, leaves);
            if (parser.nextToken() != null) {
                return false;
            }
        } catch (IOException notJson) {
            return false;
        }
        for (String[] leaf : leaves) {
            if (leaf[2] != null) {
                try {
                    number(new BigDecimal(leaf[1]), leaf[0]);
                } catch (NumberFormatException beyond) { // JSON allows any exponent: too large, it is text
                    flat(leaf[1], leaf[0]);
                }
            } else if (!json(leaf[1], leaf[0])) {
                flat(leaf[1], leaf[0]);
            }
        }
        return true;
    }

    private static void walk(JsonParser parser, String path, List<String[]> leaves) throws IOException {
        switch (parser.currentToken()) {
            case START_OBJECT:
                while (parser.nextToken() != JsonToken.END_OBJECT) {
                    String name = parser.currentName();
                    leaves.add(new String[] {path, name, null});
                    parser.nextToken();
                    walk(parser, path + "." + name, leaves);
                }
                return;
            case START_ARRAY:
                while (parser.nextToken() != JsonToken.END_ARRAY) {
                    walk(parser, path + "[*]", leaves);
                }
                return;
            case VALUE_STRING:
                leaves.add(new String[] {path, parser.getText(), null});
                return;
            case VALUE_NUMBER_INT:
            case VALUE_NUMBER_FLOAT:
                String text = parser.getText();
                if (text.length() < 100) {
                    leaves.add(new String[] {path, text, "number"});
                }
                return;
            default:
        }
    }

    private void flat(String text, String path) {
        Set<String> variants = new LinkedHashSet<>(List.of(text));
        for (int depth = 0; depth < 3; depth++) {
            for (String variant : List.copyOf(variants)) {
                if (variant.indexOf('\\') >= 0) {
                    variants.add(Words.unescaped(variant));
                }
                if (variant.indexOf('%') >= 0) {
                    variants.add(decoded(variant));
                }
            }
        }
        for (String variant : variants) {
            forms(variant, path, true);
            String joined = BREAK.matcher(variant).replaceAll("");
            if (joined.length() < variant.length()) {
                forms(joined, path, false);
            }
        }
    }

    /** Words are searched for in the text as it is, base64 and hexadecimal also where its line breaks are removed. */
    private void forms(String text, String path, boolean asItIs) {
        if (!filter.any(text.getBytes(StandardCharsets.UTF_8))) {
            return;
        }
        for (int index = 0; index < names.length; index++) {
            for (var form : names[index].forms.entrySet()) {
                if (asItIs || form.getValue().equals(Name.BASE64) || form.getValue().equals(Name.HEX)) {
                    name(text, path, index, form.getKey(), form.getValue());
                }
            }
        }
    }

    private static String decoded(String text) {
        try {
            return URLDecoder.decode(text.replace("+", "%2B"), StandardCharsets.UTF_8);
        } catch (IllegalArgumentException notEncoded) {
            return text;
        }
    }

    private void name(String text, String path, int index, String form, String kind) {
        Name name = names[index];
        boolean words = kind.equals(Name.TEXT);
        for (int start = text.indexOf(form); start >= 0; start = text.indexOf(form, start + 1)) {
            int end = start + form.length();
            if (words && !(Words.isBorder(text, start) && Words.isBorder(text, end))) {
                continue;
            }
            boolean alone = words && text.strip().equals(form);
            boolean number = words && name.plain && !alone && (name.brief || within(text, start, end));
            int contextStart = Math.max(0, start - AROUND);
            seen(index, path, number ? "number" : kind, alone,
                    number ? "" : text.substring(contextStart, Math.min(text.length(), end + AROUND)),
                    start - contextStart);
        }
    }

    private static boolean within(String text, int start, int end) {
        Matcher numbers = NUMBERS.matcher(text);
        while (numbers.find()) {
            if (numbers.start() <= start && numbers.end() >= end && numbers.end() - numbers.start() > end - start) {
                return true;
            }
        }
        return false;
    }

    private void seen(int index, String path, String kind, boolean alone, String around, int offset) {
        List<Object> key = List.of(column, path, index, kind, alone, around, offset);
        if (seen.size() >= MOST && !seen.containsKey(key)) {
            key = List.of(column, path, index, kind, false, "", 0);
        }
        seen.merge(key, 1L, Long::sum);
    }

    /**
     * Searches bytes of unknown structure. They have no words, so every occurrence counts; a plain name counts only if
     * it has `leastPlain` bytes, since shorter ones occur too often by chance.
     */
    void bytes(byte[] content, int length, int leastPlain) {
        filter.run(0, content, length, 0, (pattern, end) -> {
            int index = owners.get(pattern);
            int size = patterns.get(pattern).length;
            if (names[index].plain && size < leastPlain) {
                return;
            }
            int start = (int) end - size;
            int contextStart = Math.max(0, start - AROUND);
            int contextEnd = Math.min(length, (int) end + AROUND);
            String before = new String(content, contextStart, start - contextStart, StandardCharsets.UTF_8);
            String rest = new String(content, start, contextEnd - start, StandardCharsets.UTF_8);
            seen(index, "", kinds.get(pattern), false, before + rest, before.length());
        });
    }

    boolean isEmpty() {
        return seen.isEmpty();
    }

    /** One line of JSON about the file. */
    String line(String file, long bytes, String trouble) {
        ObjectNode document = JSON.createObjectNode().put("file", file).put("bytes", bytes);
        if (trouble != null) {
            document.put("trouble", trouble);
        }
        var hits = document.putArray("hits");
        seen.forEach((key, count) -> hits.addObject()
                .put("column", (String) key.get(0)).put("path", (String) key.get(1)).put("name", (Integer) key.get(2))
                .put("kind", (String) key.get(3)).put("alone", (Boolean) key.get(4)).put("around", (String) key.get(5))
                .put("at", (Integer) key.get(6)).put("count", count));
        try {
            return JSON.writeValueAsString(document);
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible);
        }
    }
}
