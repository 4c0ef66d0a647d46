package penstock.forget;

import java.util.function.Predicate;

/** Words of a text, for Subject and Sightings: parts of a given length with no letter or digit next to either end. */
final class Words {
    private Words() {}

    private static final String JOINS = ".@+-";

    /**
     * In a JSON document, also one that is cut off, only a whole value counts: a longer name could begin the same way.
     */
    static boolean any(String text, int length, Predicate<String> wanted) {
        String trimmed = text.strip();
        boolean isDocument = trimmed.startsWith("{") || trimmed.startsWith("[");
        for (int start = 0; length > 0 && start + length <= text.length(); start++) {
            int end = start + length;
            if (isBorder(text, start) && isBorder(text, end)
                    && (isDocument ? isValue(text, start, end)
                            : !isJoined(text, start, -1) && !isJoined(text, end - 1, 1))
                    && wanted.test(text.substring(start, end))) {
                return true;
            }
        }
        return false;
    }

    /** Whether a longer word continues here: `.uk` after an address, `-marie` after a first name. */
    private static boolean isJoined(String text, int at, int step) {
        int next = at + step;
        int after = next + step;
        return after >= 0 && after < text.length() && JOINS.indexOf(text.charAt(next)) >= 0
                && Character.isLetterOrDigit(text.charAt(after));
    }

    /** Whether it is text in quotes, the closing one possibly cut off, or a number between JSON's separators. */
    private static boolean isValue(String text, int start, int end) {
        boolean isLast = end == text.length();
        if (start > 0 && text.charAt(start - 1) == '"') {
            return isLast || text.charAt(end) == '"' || text.startsWith("\\\"", end);
        }
        int before = start - 1;
        while (before >= 0 && Character.isWhitespace(text.charAt(before))) {
            before--;
        }
        int after = end;
        while (after < text.length() && Character.isWhitespace(text.charAt(after))) {
            after++;
        }
        boolean isNumber =
                text.substring(start, end).chars().allMatch(character -> "+-.0123456789eE".indexOf(character) >= 0);
        return isNumber && before >= 0 && ":,[".indexOf(text.charAt(before)) >= 0
                && (after == text.length() || ",]}".indexOf(text.charAt(after)) >= 0);
    }

    static boolean isBorder(String text, int at) {
        if (at == 0 || at == text.length()) {
            return true;
        }
        if (Character.isSurrogatePair(text.charAt(at - 1), text.charAt(at))) {
            return false;
        }
        return !Character.isLetterOrDigit(text.codePointBefore(at)) || !Character.isLetterOrDigit(text.codePointAt(at));
    }

    /** Replaces JSON's escapes wherever they occur: a document that is cut off, and cannot be parsed, has them too. */
    static String unescaped(String text) {
        StringBuilder result = new StringBuilder(text.length());
        for (int at = 0; at < text.length(); at++) {
            char character = text.charAt(at);
            if (character != '\\' || at + 1 == text.length()) {
                result.append(character);
                continue;
            }
            char escape = text.charAt(++at);
            int code = escape == 'u' && at + 4 < text.length() ? hex(text, at + 1) : -1;
            if (code >= 0) {
                result.append((char) code);
                at += 4;
            } else {
                int position = "bfnrt".indexOf(escape);
                result.append(position < 0 ? escape : "\b\f\n\r\t".charAt(position));
            }
        }
        return result.toString();
    }

    private static int hex(String text, int at) {
        int code = 0;
        for (int i = at; i < at + 4; i++) {
            int digit = Character.digit(text.charAt(i), 16);
            if (digit < 0) {
                return -1;
            }
            code = code * 16 + digit;
        }
        return code;
    }
}
