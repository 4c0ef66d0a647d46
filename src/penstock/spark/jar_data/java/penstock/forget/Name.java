package penstock.forget;

import java.io.ByteArrayOutputStream;
import java.io.Serializable;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.text.Normalizer;
import java.util.Base64;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * A name in plain text and every form in which Search looks for it, by the rules of erasure/text_search.py. A plain
 * name often means something else: it is digits alone, or has fewer than four characters. A brief one has fewer than
 * five digits: inside a longer text they mean nothing, alone they do.
 */
final class Name implements Serializable {
    static final String TEXT = "text", BASE64 = "base64", HEX = "hex", UTF16 = "UTF-16", CUT = "cut";
    private static final int LEAST = 4, SHORT = 5, LEAST_CODED = 8, KEPT = 32;

    final String value;
    final boolean plain;
    final boolean brief;
    final BigDecimal number;
    /** Each form, with its kind. */
    final Map<String, String> forms = new LinkedHashMap<>();

    Name(String value) {
        this.value = value;
        boolean isDigits = value.matches("[0-9.\\-]+");
        plain = isDigits || value.codePointCount(0, value.length()) < LEAST;
        brief = isDigits && value.length() < SHORT;
        number = numeric(value);
        for (String form : new String[] {value, Normalizer.normalize(value, Normalizer.Form.NFC),
                Normalizer.normalize(value, Normalizer.Form.NFD)}) {
            forms.put(form, TEXT);
            if (form.indexOf(' ') >= 0) {
                forms.put(form.replace(' ', '+'), TEXT);
            }
        }
        if (value.codePointCount(0, value.length()) > KEPT) { // Delta's statistics hold this much of it
            forms.put(value.substring(0, value.offsetByCodePoints(0, KEPT)), CUT);
        }
        byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
        if (bytes.length >= LEAST) {
            forms.putIfAbsent(HexFormat.of().formatHex(bytes), HEX);
            forms.putIfAbsent(HexFormat.of().withUpperCase().formatHex(bytes), HEX);
        }
        for (int before = 0; before < 3; before++) {
            String core = core(bytes, before);
            if (core.length() >= LEAST_CODED) {
                forms.putIfAbsent(core, BASE64);
                forms.putIfAbsent(core.replace('+', '-').replace('/', '_'), BASE64);
            }
        }
    }

    /** The part of its base64 that is the same whatever the bytes around it are, if so many bytes precede it. */
    private static String core(byte[] bytes, int before) {
        var padded = new ByteArrayOutputStream();
        padded.write(new byte[before], 0, before);
        padded.write(bytes, 0, bytes.length);
        String encoded = Base64.getEncoder().encodeToString(padded.toByteArray());
        return encoded.substring((8 * before + 5) / 6, 8 * (before + bytes.length) / 6);
    }

    private static BigDecimal numeric(String value) {
        if (!value.matches("-?[0-9]+(\\.[0-9]+)?")) {
            return null;
        }
        return Canonical.number(value).equals(value) ? new BigDecimal(value) : null;
    }
}
