package penstock.jdbc;

/** Something that a person has to decide: what it is, in words, and what could be done. */
public final class Failure extends Exception {
    private final String hint;

    Failure(String message, String hint) {
        super(message);
        this.hint = hint;
    }

    public String hint() {
        return hint;
    }
}
