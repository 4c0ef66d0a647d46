package penstock.forget;

import java.util.function.Predicate;

/** Words of a text: parts of a given length that are not glued to a letter or a digit at either end. */
final class Words {
  private Words() {}

  static boolean any(String text, int length, Predicate<String> wanted) {
    for (int start = 0; length > 0 && start + length <= text.length(); start++) {
      if (isBorder(text, start) && isBorder(text, start + length) && wanted.test(text.substring(start, start + length))) {
        return true;
      }
    }
    return false;
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
