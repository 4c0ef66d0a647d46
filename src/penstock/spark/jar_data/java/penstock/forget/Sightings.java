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
 * Where names were seen in one file. In text a name counts as a word of its own, however it is written; text that holds
 * JSON is gone into, so that a number there is told from text. The rules are those of erasure/text_search.py.
 */
final class Sightings {
    private static final int MOST = 500, AROUND = 120, MOST_EXAMINED = 10_000;
    private static final ObjectMapper JSON = new ObjectMapper();
    /** Digits in here are part of something else: dates, times, numbers with a fraction, addresses, UUIDs. */
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
        List<Integer> found = numbers ? whole.get(value) : null;
        if (found != null) {
            found.forEach(index -> seen(index, "", "number", true, "", 0));
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

    /** A value that is text, or bytes. */
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

    private static boolean has(byte[] value, char sign) {
        for (byte one : value) {
            if (one == sign) {
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
     * A bound of the column's values, as statistics have it: the beginning of a value, whose last byte may be one more
     * than it was. What was seen in that value itself is all that there is to see.
     */
    void bound(byte[] value) {
        if (!filter.any(value)) {
            return;
        }
        bounds.add(value);
        for (byte[] one : examined) {
            if (one.length >= value.length - 1 && Arrays.equals(one, 0, value.length - 1, value, 0, value.length - 1)) {
                return;
            }
        }
        value(value);
    }

    /** What follows the pages of a Parquet file, but for the bounds, which were looked at. */
    void footer(byte[] content) {
        byte[] rest = content.clone();
        for (byte[] bound : bounds) {
            for (int at = 0; at + bound.length <= rest.length; at++) {
                if (Arrays.equals(rest, at, at + bound.length, bound, 0, bound.length)) {
                    Arrays.fill(rest, at, at + bound.length, (byte) 0);
                }
            }
        }
        bytes(rest, rest.length, Integer.MAX_VALUE);
    }

    /** Text as a file or a value has it. */
    void text(String text) {
        if (!json(text, "")) {
            flat(text, "");
        }
    }

    /** False if it is no JSON object or array. */
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
        } catch (IOException none) {
            return false;
        }
        for (String[] leaf : leaves) {
            if (leaf[2] != null) {
                try {
                    number(new BigDecimal(leaf[1]), leaf[0]);
                } catch (NumberFormatException beyond) { // JSON allows any exponent: what no number can be is text
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
            for (String one : List.copyOf(variants)) {
                if (one.indexOf('\\') >= 0) {
                    variants.add(Words.unescaped(one));
                }
                if (one.indexOf('%') >= 0) {
                    variants.add(decoded(one));
                }
            }
        }
        for (String one : variants) {
            forms(one, path, true);
            String joined = BREAK.matcher(one).replaceAll("");
            if (joined.length() < one.length()) {
                forms(joined, path, false);
            }
        }
    }

    /** Words are looked for in the text as it is, base64 and hexadecimal also where its line breaks are removed. */
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
        } catch (IllegalArgumentException none) {
            return text;
        }
    }

    private void name(String text, String path, int index, String sought, String kind) {
        Name name = names[index];
        boolean words = kind.equals(Name.TEXT);
        for (int at = text.indexOf(sought); at >= 0; at = text.indexOf(sought, at + 1)) {
            int end = at + sought.length();
            if (words && !(Words.isBorder(text, at) && Words.isBorder(text, end))) {
                continue;
            }
            boolean alone = words && text.strip().equals(sought);
            boolean number = words && name.plain && !alone && (name.brief || within(text, at, end));
            int first = Math.max(0, at - AROUND);
            seen(index, path, number ? "number" : kind, alone,
                    number ? "" : text.substring(first, Math.min(text.length(), end + AROUND)), at - first);
        }
    }

    private static boolean within(String text, int at, int end) {
        Matcher numbers = NUMBERS.matcher(text);
        while (numbers.find()) {
            if (numbers.start() <= at && numbers.end() >= end && numbers.end() - numbers.start() > end - at) {
                return true;
            }
        }
        return false;
    }

    private void seen(int name, String path, String kind, boolean alone, String around, int at) {
        List<Object> key = List.of(column, path, name, kind, alone, around, at);
        if (seen.size() >= MOST && !seen.containsKey(key)) {
            key = List.of(column, path, name, kind, false, "", 0);
        }
        seen.merge(key, 1L, Long::sum);
    }

    /**
     * Bytes of which nothing is known. There are no words in them, so every occurrence counts; of a plain name only if
     * it is so long, since there would be too many by chance.
     */
    void bytes(byte[] content, int length, int leastPlain) {
        filter.run(0, content, length, 0, (pattern, end) -> {
            int index = owners.get(pattern);
            int size = patterns.get(pattern).length;
            if (names[index].plain && size < leastPlain) {
                return;
            }
            int start = (int) end - size;
            int first = Math.max(0, start - AROUND);
            int last = Math.min(length, (int) end + AROUND);
            String before = new String(content, first, start - first, StandardCharsets.UTF_8);
            String from = new String(content, start, last - start, StandardCharsets.UTF_8);
            seen(index, "", kinds.get(pattern), false, before + from, before.length());
        });
    }

    boolean isEmpty() {
        return seen.isEmpty();
    }

    /** A line of JSON about the file. */
    String line(String file, long bytes, String trouble) {
        ObjectNode made = JSON.createObjectNode().put("file", file).put("bytes", bytes);
        if (trouble != null) {
            made.put("trouble", trouble);
        }
        var hits = made.putArray("hits");
        seen.forEach((key, count) -> hits.addObject()
                .put("column", (String) key.get(0)).put("path", (String) key.get(1)).put("name", (Integer) key.get(2))
                .put("kind", (String) key.get(3)).put("alone", (Boolean) key.get(4)).put("around", (String) key.get(5))
                .put("at", (Integer) key.get(6)).put("count", count));
        try {
            return JSON.writeValueAsString(made);
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible);
        }
    }
}
