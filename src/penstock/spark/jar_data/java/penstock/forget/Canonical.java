package penstock.forget;

import java.math.BigDecimal;

/** One text for a number however it is written, by the rules of `canonical` in tables/suppression_list.py. */
final class Canonical {
    private static final int LARGEST_EXPONENT = 400, LONGEST = 1000;

    private Canonical() {}

    static String number(String text) {
        if (text.length() > LONGEST) {
            return text;
        }
        BigDecimal number;
        try {
            number = new BigDecimal(text);
        } catch (NumberFormatException notFinite) {
            return text;
        }
        if (number.signum() == 0) {
            return "0";
        }
        return Math.abs((long) number.scale()) > LARGEST_EXPONENT ? number.toString()
                : number.stripTrailingZeros().toPlainString();
    }
}
