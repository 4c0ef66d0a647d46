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
 * A name in clear, with every form in which it is looked for. As erasure/text_search.py has it. A plain name is one
 * that is often something else: digits alone, or fewer than four characters. A brief one has fewer than five digits:
 * inside a longer text they say nothing, alone they do.
 */
final class Name implements Serializable {
    static final String TEXT = "text", BASE64 = "base64", HEX = "hex", UTF16 = "UTF-16", CUT = "cut";
    private static final int LEAST = 4, SHORT = 5, LEAST_CODED = 8, KEPT = 32;

    final String value;
    final boolean plain;
    final boolean brief;
    final BigDecimal number;
    /** Form -> what kind of form it is. */
    final Map<String, String> forms = new LinkedHashMap<>();

    Name(String value) {
        this.value = value;
        boolean digits = value.matches("[0-9.\\-]+");
        plain = digits || value.codePointCount(0, value.length()) < LEAST;
        brief = digits && value.length() < SHORT;
        number = numeric(value);
        for (String one : new String[] {value, Normalizer.normalize(value, Normalizer.Form.NFC),
                Normalizer.normalize(value, Normalizer.Form.NFD)}) {
            forms.put(one, TEXT);
            if (one.indexOf(' ') >= 0) {
                forms.put(one.replace(' ', '+'), TEXT);
            }
        }
        if (value.codePointCount(0, value.length()) > KEPT) { // what Delta's statistics have of it
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

    /** What base64 makes of it behind so many other bytes: the part that depends on nothing else. */
    private static String core(byte[] bytes, int before) {
        var whole = new ByteArrayOutputStream();
        whole.write(new byte[before], 0, before);
        whole.write(bytes, 0, bytes.length);
        String coded = Base64.getEncoder().encodeToString(whole.toByteArray());
        return coded.substring((8 * before + 5) / 6, 8 * (before + bytes.length) / 6);
    }

    private static BigDecimal numeric(String value) {
        if (!value.matches("-?[0-9]+(\\.[0-9]+)?")) {
            return null;
        }
        return Canonical.number(value).equals(value) ? new BigDecimal(value) : null;
    }
}
