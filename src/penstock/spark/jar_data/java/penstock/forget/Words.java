package penstock.forget;

import java.util.function.Predicate;

/** Words of a text: parts of a given length that are not glued to a letter or a digit at either end. */
final class Words {
    private Words() {}

    private static final String JOINS = ".@+-";

    /** In a document that is cut off only a whole value counts: elsewhere a longer name could begin alike. */
    static boolean any(String text, int length, Predicate<String> wanted) {
        String trimmed = text.strip();
        boolean document = trimmed.startsWith("{") || trimmed.startsWith("[");
        for (int start = 0; length > 0 && start + length <= text.length(); start++) {
            int end = start + length;
            if (isBorder(text, start) && isBorder(text, end)
                    && (document ? isValue(text, start, end)
                            : !isJoined(text, start, -1) && !isJoined(text, end - 1, 1))
                    && wanted.test(text.substring(start, end))) {
                return true;
            }
        }
        return false;
    }

    /** Whether a longer word goes on from here: `.uk` behind an address, `-marie` behind a first name. */
    private static boolean isJoined(String text, int at, int step) {
        int next = at + step;
        int after = next + step;
        return after >= 0 && after < text.length() && JOINS.indexOf(text.charAt(next)) >= 0
                && Character.isLetterOrDigit(text.charAt(after));
    }

    /** Text between quotes, of which the second may be cut off, or a number between the signs of a document. */
    private static boolean isValue(String text, int start, int end) {
        boolean ends = end == text.length();
        if (start > 0 && text.charAt(start - 1) == '"') {
            return ends || text.charAt(end) == '"' || text.startsWith("\\\"", end);
        }
        int before = start - 1;
        while (before >= 0 && Character.isWhitespace(text.charAt(before))) {
            before--;
        }
        int after = end;
        while (after < text.length() && Character.isWhitespace(text.charAt(after))) {
            after++;
        }
        boolean number = text.substring(start, end).chars().allMatch(one -> "+-.0123456789eE".indexOf(one) >= 0);
        return number && before >= 0 && ":,[".indexOf(text.charAt(before)) >= 0
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

    /** With the escapes of JSON replaced, wherever they are: a document that is cut off has them too. */
    static String unescaped(String text) {
        StringBuilder made = new StringBuilder(text.length());
        for (int at = 0; at < text.length(); at++) {
            char sign = text.charAt(at);
            if (sign != '\\' || at + 1 == text.length()) {
                made.append(sign);
                continue;
            }
            char kind = text.charAt(++at);
            int code = kind == 'u' && at + 4 < text.length() ? hex(text, at + 1) : -1;
            if (code >= 0) {
                made.append((char) code);
                at += 4;
            } else {
                int plain = "bfnrt".indexOf(kind);
                made.append(plain < 0 ? kind : "\b\f\n\r\t".charAt(plain));
            }
        }
        return made.toString();
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
