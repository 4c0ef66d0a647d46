package penstock.json;

import java.util.Arrays;

/** Reads Base64 by RFC 4648, with its padding and also over several lines; chosen by Texts for BINARY. */
final class Bytes {
    private static final byte[] VALUES = new byte[128];

    static {
        Arrays.fill(VALUES, (byte) -1);
        String alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        for (int i = 0; i < alphabet.length(); i++) {
            VALUES[alphabet.charAt(i)] = (byte) i;
        }
    }

    private Bytes() {}

    static Object read(char[] text, int from, int to) {
        byte[] decoded = new byte[(int) ((to - from) * 3L / 4)];
        int size = 0, bits = 0, count = 0, padding = 0;
        for (int i = from; i < to; i++) {
            char letter = text[i];
            if (letter == ' ' || letter == '\t' || letter == '\r' || letter == '\n') {
                continue;
            }
            if (letter == '=') {
                padding++;
                continue;
            }
            int value = letter < VALUES.length ? VALUES[letter] : -1;
            if (value < 0 || padding > 0) {
                return Texts.WRONG;
            }
            bits = bits << 6 | value;
            if (++count % 4 == 0) {
                decoded[size++] = (byte) (bits >> 16);
                decoded[size++] = (byte) (bits >> 8);
                decoded[size++] = (byte) bits;
                bits = 0;
            }
        }
        int left = count % 4;
        if (left == 1 || padding != (4 - left) % 4) {
            return Texts.WRONG;
        }
        if (left > 0) {
            int spare = left == 2 ? 4 : 2; // bits that belong to no byte: a writer leaves them zero
            if ((bits & (1 << spare) - 1) != 0) {
                return Texts.WRONG;
            }
            bits >>= spare;
            if (left == 3) {
                decoded[size++] = (byte) (bits >> 8);
            }
            decoded[size++] = (byte) bits;
        }
        return size == decoded.length ? decoded : Arrays.copyOf(decoded, size);
    }
}
