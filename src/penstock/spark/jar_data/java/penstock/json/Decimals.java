package penstock.json;

import java.math.BigDecimal;
import java.math.BigInteger;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;

/** Reads decimals, and never rounds them; chosen by Texts. */
final class Decimals implements Texts {
    private static final int DIGITS_OF_A_LONG = 18;
    private static final long[] TENS = new long[DIGITS_OF_A_LONG + 1];
    private static final int LONGEST_UNSCALED = 1024; // bytes: far more than any DECIMAL, and quick to divide

    static {
        TENS[0] = 1;
        for (int i = 1; i < TENS.length; i++) {
            TENS[i] = TENS[i - 1] * 10;
        }
    }

    private final int precision;
    private final int scale;

    Decimals(DecimalType type) {
        precision = type.precision();
        scale = type.scale();
    }

    @Override
    public Object read(char[] text, int from, int to) {
        Decimal plain = plain(text, from, to - from);
        if (plain != null) {
            return plain;
        }
        Written number = Written.of(text, from, to);
        if (number == null) {
            return WRONG;
        }
        if (number.digits == 0) {
            return zero();
        }
        long shift = number.exponent + scale;
        if (shift < 0 || number.digits + shift > precision) {
            return UNFIT;
        }
        if (precision <= DIGITS_OF_A_LONG) {
            long value = number.smallDigits() * TENS[(int) shift];
            return Decimal.createUnsafe(number.negative ? -value : value, precision, scale);
        }
        return made(number.allDigits().multiply(BigInteger.TEN.pow((int) shift)));
    }

    /** Reads digits with a point, as nearly all are written; null if it takes more than that. */
    private Decimal plain(char[] text, int from, int length) {
        if (length <= 0 || length > DIGITS_OF_A_LONG || precision > DIGITS_OF_A_LONG) {
            return null;
        }
        boolean negative = text[from] == '-';
        long value = 0;
        int digits = 0, fractionDigits = -1;
        for (int i = from + (negative ? 1 : 0); i < from + length; i++) {
            char letter = text[i];
            if (letter == '.' && fractionDigits < 0 && digits > 0) {
                fractionDigits = 0;
            } else if (letter >= '0' && letter <= '9') {
                value = value * 10 + (letter - '0');
                digits++;
                fractionDigits = fractionDigits < 0 ? fractionDigits : fractionDigits + 1;
            } else {
                return null;
            }
        }
        int missing = scale - Math.max(fractionDigits, 0);
        if (digits == 0 || fractionDigits == 0 || missing < 0 || value >= TENS[precision - missing]) {
            return null;
        }
        value *= TENS[missing];
        return Decimal.createUnsafe(negative ? -value : value, precision, scale);
    }

    private Decimal zero() {
        return Decimal.apply(BigDecimal.ZERO.setScale(scale), precision, scale);
    }

    private Decimal made(BigInteger unscaled) {
        return Decimal.apply(new BigDecimal(unscaled, scale), precision, scale);
    }

    /** The decimal of a whole number in two's complement with `decimals` of its digits behind the point, or UNFIT. */
    Object unscaled(byte[] bytes, int decimals) {
        if (bytes.length > LONGEST_UNSCALED) {
            return UNFIT;
        }
        BigInteger value = new BigInteger(bytes);
        if (value.signum() == 0) {
            return zero();
        }
        long shift = (long) scale - decimals;
        if (shift > precision || -shift > 3L * LONGEST_UNSCALED) { // it does not have that many digits
            return UNFIT;
        }
        if (shift < 0) {
            BigInteger[] parts = value.divideAndRemainder(BigInteger.TEN.pow((int) -shift));
            if (parts[1].signum() != 0) {
                return UNFIT;
            }
            value = parts[0];
        } else {
            value = value.multiply(BigInteger.TEN.pow((int) shift));
        }
        return value.abs().compareTo(BigInteger.TEN.pow(precision)) < 0 ? made(value) : UNFIT;
    }
}
