package penstock.json;

import java.nio.charset.StandardCharsets;

/** As much of a text as an error message should show. */
final class Shown {
    private static final int CHARACTERS = 80;
    private static final int LONGEST = 4 * CHARACTERS;

    private Shown() {}

    static String of(byte[] bytes) {
        return of(bytes, 0, bytes.length);
    }

    static String of(byte[] bytes, int from, int to) {
        return of(new String(bytes, from, Math.min(to - from, LONGEST), StandardCharsets.UTF_8), CHARACTERS);
    }

    static String of(String text, int characters) {
        return text.codePointCount(0, text.length()) <= characters
                ? text
                : text.substring(0, text.offsetByCodePoints(0, characters));
    }
}
