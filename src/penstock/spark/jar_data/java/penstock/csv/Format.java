package penstock.csv;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * How a record of separated values is written, and its only reader: for files, Kafka payloads and headers alike. Every
 * record is read exactly, or has a fault: an unclosed quote, text behind a closing quote, a second line.
 *
 * A cell that begins with a quote is quoted; a quote anywhere else is a character like any other. An empty cell is
 * NULL, an empty cell in quotes is an empty text.
 */
final class Format implements Serializable {
    static final String UNCLOSED = "a quote is opened and not closed";
    private static final byte[] NOTHING = new byte[0];

    final byte[] separator;
    final byte[] quote;
    final byte[] escape;
    private final boolean doubled;
    private final byte[] missing;
    private final byte[] empty;
    private final boolean trimLeft;
    private final boolean trimRight;

    /** `options` are named as Spark names them. */
    Format(Map<String, String> options) {
        String sep = options.getOrDefault("sep", options.getOrDefault("delimiter", ","));
        separator = bytes(sep.replace("\\t", "\t"));
        quote = bytes(options.getOrDefault("quote", "\""));
        escape = bytes(options.getOrDefault("escape", options.getOrDefault("quote", "\"")));
        doubled = Arrays.equals(quote, escape);
        missing = bytes(options.getOrDefault("nullValue", ""));
        empty = bytes(options.getOrDefault("emptyValue", ""));
        trimLeft = Boolean.parseBoolean(options.getOrDefault("ignoreLeadingWhiteSpace", "false"));
        trimRight = Boolean.parseBoolean(options.getOrDefault("ignoreTrailingWhiteSpace", "false"));
    }

    /** The cells of a record. */
    static final class Parts {
        final List<UTF8String> cells = new ArrayList<>();
        /** The number of all cells, also of those beyond the ones asked for. */
        int count;
    }

    /**
     * Adds the first `most` cells of a record, NULL among them, counts all cells, and returns the record's fault, or
     * null.
     */
    String read(byte[] text, Parts parts, int most) {
        int at = 0;
        while (true) {
            boolean wanted = parts.count < most;
            int first = trimLeft ? overBlanks(text, at) : at;
            if (stands(quote, text, first)) {
                int start = first + quote.length, escapeBytes = 0;
                at = start;
                while (!stands(quote, text, at) || escaped(text, at) > 0) {
                    if (at >= text.length) {
                        return UNCLOSED + ", in cell " + (parts.count + 1);
                    }
                    int escaped = escaped(text, at);
                    escapeBytes += escaped > 0 ? escape.length : 0;
                    at += escaped > 0 ? escape.length + escaped : 1;
                }
                int end = at;
                at += quote.length;
                at = trimRight ? overBlanks(text, at) : at;
                if (at < text.length && !stands(separator, text, at) && !isBreak(text[at])) {
                    return "there is text behind the closing quote of cell " + (parts.count + 1);
                }
                if (wanted) {
                    byte[] value = end == start ? empty : unescaped(text, start, end, escapeBytes);
                    parts.cells.add(
                            missing.length > 0 && Arrays.equals(value, missing) ? null : UTF8String.fromBytes(value));
                }
            } else {
                at = first;
                while (at < text.length && !isBreak(text[at]) && !stands(separator, text, at)) {
                    at++;
                }
                int end = at;
                while (trimRight && end > first && isBlank(text[end - 1])) {
                    end--;
                }
                if (wanted) {
                    byte[] value = end == first ? NOTHING : Arrays.copyOfRange(text, first, end);
                    parts.cells.add(
                            value.length == 0 || Arrays.equals(value, missing) ? null : UTF8String.fromBytes(value));
                }
            }
            parts.count++;
            if (at >= text.length) {
                return null;
            }
            if (isBreak(text[at])) {
                return onlySpace(text, at) ? null : "it is more than one line";
            }
            at += separator.length;
        }
    }

    /** The text between quotes, unescaped. `escapeBytes`: how many of its bytes only escape others. */
    private byte[] unescaped(byte[] text, int start, int end, int escapeBytes) {
        if (escapeBytes == 0) {
            return Arrays.copyOfRange(text, start, end);
        }
        byte[] content = new byte[end - start - escapeBytes];
        for (int at = start, length = 0; at < end; ) {
            int escaped = escaped(text, at);
            int size = escaped > 0 ? escaped : 1;
            at += escaped > 0 ? escape.length : 0;
            System.arraycopy(text, at, content, length, size);
            at += size;
            length += size;
        }
        return content;
    }

    /**
     * Whether the text ends within a quoted cell, read from within one if `quoted`, otherwise from its start. Null if a
     * quote is wrong.
     */
    Boolean endsQuoted(byte[] text, boolean quoted) {
        int at = 0;
        boolean within = quoted;
        while (true) {
            if (!within) {
                at = trimLeft ? overBlanks(text, at) : at;
                within = stands(quote, text, at);
                at += within ? quote.length : 0;
            }
            if (within) {
                while (true) {
                    if (at >= text.length) {
                        return true;
                    }
                    int escaped = escaped(text, at);
                    if (escaped > 0) {
                        at += escape.length + escaped;
                    } else if (stands(quote, text, at)) {
                        at += quote.length;
                        break;
                    } else {
                        at++;
                    }
                }
                at = trimRight ? overBlanks(text, at) : at;
                if (at < text.length && !stands(separator, text, at)) {
                    return null;
                }
                within = false;
            } else {
                while (at < text.length && !stands(separator, text, at)) {
                    at++;
                }
            }
            if (at >= text.length) {
                return false;
            }
            at += separator.length;
        }
    }

    /** Whether the text can contain a quoted cell: most lines cannot. */
    boolean hasQuote(byte[] text) {
        if (quote.length == 0) {
            return false;
        }
        for (byte current : text) {
            if (current == quote[0]) {
                return true;
            }
        }
        return false;
    }

    /** The length of what is escaped here, within quotes: a quote, or the escape character itself; 0 if nothing is. */
    private int escaped(byte[] text, int at) {
        if (!stands(escape, text, at)) {
            return 0;
        }
        int next = at + escape.length;
        if (stands(quote, text, next)) {
            return quote.length;
        }
        return !doubled && stands(escape, text, next) ? escape.length : 0;
    }

    private static boolean stands(byte[] marker, byte[] text, int at) {
        if (marker.length == 0 || at + marker.length > text.length) {
            return false;
        }
        for (int i = 0; i < marker.length; i++) {
            if (text[at + i] != marker[i]) {
                return false;
            }
        }
        return true;
    }

    private int overBlanks(byte[] text, int at) {
        int next = at;
        while (next < text.length && isBlank(text[next]) && !stands(separator, text, next)) {
            next++;
        }
        return next;
    }

    private static boolean isBlank(byte character) {
        return character == ' ' || character == '\t';
    }

    private static boolean isBreak(byte character) {
        return character == '\n' || character == '\r';
    }

    private static boolean onlySpace(byte[] text, int from) {
        for (int at = from; at < text.length; at++) {
            if (!isBlank(text[at]) && !isBreak(text[at])) {
                return false;
            }
        }
        return true;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private List<Object> parts() {
        List<Object> parts = new ArrayList<>(List.of(trimLeft, trimRight));
        for (byte[] part : List.of(separator, quote, escape, missing, empty)) {
            parts.add(UTF8String.fromBytes(part));
        }
        return parts;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Format that && parts().equals(that.parts());
    }

    @Override
    public int hashCode() {
        return Objects.hash(parts());
    }
}
