package penstock.json;

import java.util.Arrays;

/** Bytes as Base64 by RFC 4648: with its padding, also over several lines. */
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
        byte[] made = new byte[(int) ((to - from) * 3L / 4)];
        int size = 0, bits = 0, count = 0, padding = 0;
        for (int i = from; i < to; i++) {
            char one = text[i];
            if (one == ' ' || one == '\t' || one == '\r' || one == '\n') {
                continue;
            }
            if (one == '=') {
                padding++;
                continue;
            }
            int value = one < VALUES.length ? VALUES[one] : -1;
            if (value < 0 || padding > 0) {
                return Texts.WRONG;
            }
            bits = bits << 6 | value;
            if (++count % 4 == 0) {
                made[size++] = (byte) (bits >> 16);
                made[size++] = (byte) (bits >> 8);
                made[size++] = (byte) bits;
                bits = 0;
            }
        }
        int left = count % 4;
        if (left == 1 || padding != (4 - left) % 4) {
            return Texts.WRONG;
        }
        if (left > 0) {
            int spare = left == 2 ? 4 : 2; // bits that no byte has: a writer leaves them zero
            if ((bits & (1 << spare) - 1) != 0) {
                return Texts.WRONG;
            }
            bits >>= spare;
            if (left == 3) {
                made[size++] = (byte) (bits >> 8);
            }
            made[size++] = (byte) bits;
        }
        return size == made.length ? made : Arrays.copyOf(made, size);
    }
}
