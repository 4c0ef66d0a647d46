package penstock.json;

import java.math.BigInteger;

/**
 * A number as it is written: significant digits times a power of ten; for Numbers, Decimals and CellType. Parsed in one
 * pass, whatever its exponent and however many digits it has; nothing is computed before it is known to be small.
 */
final class Written {
    private static final long ENDLESS = 1L << 40; // more than a text has digits

    private final char[] text;
    private final int first;
    private final int last;
    final boolean negative;
    /** The count of significant digits, from the first to the last that is not zero; 0 if the number is zero. */
    final int digits;
    /** The power of ten of the last significant digit. Beyond +-ENDLESS it is no longer exact. */
    final long exponent;

    private Written(char[] text, int first, int last, boolean negative, int digits, long exponent) {
        this.text = text;
        this.first = first;
        this.last = last;
        this.negative = negative;
        this.digits = digits;
        this.exponent = exponent;
    }

    /**
     * Accepts the grammar of JSON, and also a plus sign, leading zeros, or digits on only one side of the point. Null
     * if it is not a number.
     */
    static Written of(char[] text, int from, int to) {
        int at = from;
        boolean negative = at < to && text[at] == '-';
        if (at < to && (text[at] == '-' || text[at] == '+')) {
            at++;
        }
        int count = 0, point = -1, first = -1, last = -1, firstCount = 0, lastCount = 0;
        for (; at < to; at++) {
            char letter = text[at];
            if (letter >= '0' && letter <= '9') {
                if (letter != '0') {
                    if (first < 0) {
                        first = at;
                        firstCount = count;
                    }
                    last = at;
                    lastCount = count;
                }
                count++;
            } else if (letter == '.' && point < 0) {
                point = count;
            } else {
                break;
            }
        }
        if (count == 0) {
            return null;
        }
        long power = 0;
        if (at < to && (text[at] == 'e' || text[at] == 'E')) {
            at++;
            boolean isNegativePower = at < to && text[at] == '-';
            if (at < to && (text[at] == '-' || text[at] == '+')) {
                at++;
            }
            int start = at;
            for (; at < to && text[at] >= '0' && text[at] <= '9'; at++) {
                power = Math.min(power * 10 + (text[at] - '0'), ENDLESS);
            }
            if (at == start) {
                return null;
            }
            power = isNegativePower ? -power : power;
        }
        if (at < to) {
            return null;
        }
        if (first < 0) {
            return new Written(text, 0, 0, negative, 0, 0);
        }
        long exponent = (point < 0 ? count : point) - 1L - lastCount + power;
        return new Written(text, first, last, negative, lastCount - firstCount + 1, exponent);
    }

    /** The digits as a whole number, without the sign: only for as many as a long holds. */
    long smallDigits() {
        long value = 0;
        for (int i = first; digits > 0 && i <= last; i++) {
            if (text[i] != '.') {
                value = value * 10 + (text[i] - '0');
            }
        }
        return value;
    }

    /** The digits as a whole number, with the sign. The caller knows that they are few. */
    BigInteger allDigits() {
        StringBuilder result = new StringBuilder(digits + 1).append(negative ? '-' : '+');
        for (int i = first; i <= last; i++) {
            if (text[i] != '.') {
                result.append(text[i]);
            }
        }
        return new BigInteger(result.toString());
    }
}
