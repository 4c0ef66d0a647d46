package penstock.json;

/** What is wrong with a record: the reason for which Decoder and Changes reject it. */
final class Fault extends RuntimeException {
    private static final int LONGEST_DETAIL = 500; // the name of a field can be as long as its record

    final String reason;
    final String detail;

    Fault(String reason, String detail) {
        super(detail, null, false, false); // thrown per record: a stack trace would cost more than the parse
        this.reason = reason;
        this.detail = Shown.of(detail, LONGEST_DETAIL);
    }
}
