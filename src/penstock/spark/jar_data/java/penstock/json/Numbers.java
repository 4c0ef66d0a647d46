package penstock.json;

import java.math.BigDecimal;
import java.math.MathContext;
import java.math.RoundingMode;
import java.util.function.LongFunction;

/** Reads whole numbers and binary fractions; chosen by Texts. */
final class Numbers {
    private static final int DIGITS_OF_A_LONG = 18;
    private static final int MOST_DIGITS = 19; // of Long.MAX_VALUE
    /** From here on a DOUBLE or a FLOAT cannot hold every whole number. */
    private static final double WHOLE_DOUBLES = 1L << 53;
    private static final float WHOLE_FLOATS = 1 << 24;
    private static final int DIGITS_OF_A_DOUBLE = 309; // of the largest
    private static final double[] TENS = new double[23]; // these are exact

    static {
        TENS[0] = 1;
        for (int i = 1; i < TENS.length; i++) {
            TENS[i] = TENS[i - 1] * 10;
        }
    }

    private Numbers() {}

    static Texts integers(long least, long most, LongFunction<Object> convert) {
        return (text, from, to) -> {
            int at = from < to && text[from] == '-' ? from + 1 : from;
            long value = 0;
            if (at < to && to - at <= DIGITS_OF_A_LONG) {
                for (; at < to && text[at] >= '0' && text[at] <= '9'; at++) {
                    value = value * 10 + (text[at] - '0');
                }
                if (at == to) {
                    value = text[from] == '-' ? -value : value;
                    return least <= value && value <= most ? convert.apply(value) : Texts.UNFIT;
                }
            }
            return integer(Written.of(text, from, to), least, most, convert);
        };
    }

    /** 1.0 and 1e2 are whole numbers too. */
    private static Object integer(Written number, long least, long most, LongFunction<Object> convert) {
        if (number == null) {
            return Texts.WRONG;
        }
        if (number.digits == 0) {
            return convert.apply(0);
        }
        if (number.exponent < 0 || number.digits + number.exponent > MOST_DIGITS) {
            return Texts.UNFIT;
        }
        // 19 digits may be one bit too many for a long, which is then negative; negative numbers reach one further.
        long value = number.smallDigits();
        for (int i = 0; i < number.exponent; i++) {
            if (value < 0 || value > Long.MAX_VALUE / 10) {
                return Texts.UNFIT;
            }
            value *= 10;
        }
        if (value < 0 && !(number.negative && value == Long.MIN_VALUE)) {
            return Texts.UNFIT;
        }
        value = number.negative ? -value : value;
        return least <= value && value <= most ? convert.apply(value) : Texts.UNFIT;
    }

    static Object real(char[] text, int from, int to) {
        Written number = Written.of(text, from, to);
        if (number == null) {
            return Texts.WRONG;
        }
        if (number.digits <= 15 && -TENS.length < number.exponent && number.exponent < TENS.length) { // rounded once
            double digits = number.smallDigits();
            double value = number.exponent < 0 ? digits / TENS[(int) -number.exponent]
                    : digits * TENS[(int) number.exponent];
            return number.negative ? -value : value;
        }
        double value = Double.parseDouble(new String(text, from, to - from));
        if (Double.isInfinite(value) || value == 0 && number.digits > 0) {
            return Texts.UNFIT;
        }
        return Math.abs(value) >= WHOLE_DOUBLES && !comesBack(value, number) ? Texts.UNFIT : (Object) value;
    }

    static Object single(char[] text, int from, int to) {
        Written number = Written.of(text, from, to);
        if (number == null) {
            return Texts.WRONG;
        }
        float value = Float.parseFloat(new String(text, from, to - from));
        if (Float.isInfinite(value) || value == 0 && number.digits > 0) {
            return Texts.UNFIT;
        }
        return Math.abs(value) >= WHOLE_FLOATS && !comesBack(value, number) ? Texts.UNFIT : (Object) value;
    }

    /** Whether the value, rounded to as many digits as were written, equals what was written. */
    private static boolean comesBack(double value, Written number) {
        if (number.digits > DIGITS_OF_A_DOUBLE) {
            return false;
        }
        BigDecimal written = new BigDecimal(number.allDigits(), (int) -number.exponent);
        return new BigDecimal(value).round(new MathContext(number.digits, RoundingMode.HALF_EVEN))
                .compareTo(written) == 0;
    }
}
