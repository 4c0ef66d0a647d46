package penstock.jdbc;

/** An error that a person has to resolve: what it is, and a hint. sinks/jdbc.py turns it into a PenstockError. */
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
