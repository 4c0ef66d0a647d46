package penstock.jdbc;

import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLDataException;
import java.sql.SQLException;
import java.sql.SQLFeatureNotSupportedException;
import java.sql.SQLIntegrityConstraintViolationException;
import java.sql.Savepoint;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.Row;

/**
 * Writes changes into a table, many at a time, for Session. What fails is halved until the row is found that the
 * database refuses. Such rows are tried again after all others: a delete or a row of another key may have been in the
 * way.
 *
 * <p>A row has its columns, then its key as text, whether it was deleted, and why it cannot be sent, or NULL.
 */
final class Rows implements AutoCloseable {
    private static final int CHUNK = 1000;
    private static final long CHUNK_BYTES = 8L << 20;
    private static final int MOST_REFUSED = 10_000;
    private static final int MESSAGE = 2000;

    /** SQL states of a value, a constraint, a limit that a row exceeds, a view's condition: they concern the row. */
    private static final Set<String> OF_A_ROW = Set.of("21", "22", "23", "44", "54");

    private static final String RAISED = "P0001";

    private final Connection connection;
    private final Dialect dialect;
    private final List<Column> columns;
    private final PreparedStatement upsert;
    private final PreparedStatement update;
    private final PreparedStatement insert;
    private final PreparedStatement delete;
    private final List<String[]> refused = new ArrayList<>();
    private List<Row> again = new ArrayList<>(); // refused rows, to be tried again
    private List<SQLException> why = new ArrayList<>(); // the error of each row in `again`
    private long written;
    private long aside;

    Rows(Connection connection, Dialect dialect, String table, List<Column> columns, List<String> names)
            throws SQLException {
        this.connection = connection;
        this.dialect = dialect;
        this.columns = columns;
        List<String> keys = new ArrayList<>();
        for (int i = 0; i < columns.size(); i++) {
            if (columns.get(i).key) {
                keys.add(names.get(i));
            }
        }
        String condition = " WHERE " + String.join(" = ? AND ", keys) + " = ?";
        delete = connection.prepareStatement("DELETE FROM " + table + condition);
        String upsertSql = dialect.upsert(table, names, keys);
        upsert = upsertSql == null ? null : connection.prepareStatement(upsertSql);
        String assignments = String.join(" = ?, ", names) + " = ?";
        update = upsertSql == null
                ? connection.prepareStatement("UPDATE " + table + " SET " + assignments + condition)
                : null;
        insert = upsertSql == null ? connection.prepareStatement(Dialect.insert(table, names)) : null;
    }

    long written() {
        return written;
    }

    /** How many rows were left out because they cannot be sent. */
    long aside() {
        return aside;
    }

    /** Key, SQLState and message of each row that was refused. */
    List<String[]> refused() {
        return refused;
    }

    void write(Iterator<Row> rows) throws SQLException, Failure {
        int size = columns.size();
        List<Row> chunk = new ArrayList<>();
        long bytes = 0;
        while (rows.hasNext()) {
            Row row = rows.next();
            if (!row.isNullAt(size + 2)) {
                aside++;
                continue;
            }
            chunk.add(row);
            bytes += weight(row);
            if (chunk.size() == CHUNK || bytes > CHUNK_BYTES) {
                send(chunk);
                chunk.clear();
                bytes = 0;
            }
        }
        send(chunk);
        for (int previous = Integer.MAX_VALUE; !again.isEmpty() && again.size() < previous;) {
            previous = again.size();
            List<Row> retried = again;
            again = new ArrayList<>();
            why = new ArrayList<>();
            for (Row row : retried) {
                send(List.of(row));
            }
        }
        for (int i = 0; i < again.size(); i++) {
            refused.add(new String[] {again.get(i).getString(size), why.get(i).getSQLState(), told(why.get(i))});
        }
    }

    private void send(List<Row> rows) throws SQLException, Failure {
        if (rows.isEmpty()) {
            return;
        }
        Savepoint savepoint = connection.setSavepoint();
        try {
            put(rows);
            written += rows.size();
        } catch (SQLException error) {
            SQLException cause = innermost(error);
            if (!ofARow(cause)) {
                throw cause;
            }
            connection.rollback(savepoint);
            if (rows.size() > 1) {
                int half = rows.size() / 2;
                send(rows.subList(0, half));
                send(rows.subList(half, rows.size()));
            } else {
                again.add(rows.get(0));
                why.add(cause);
                if (again.size() > MOST_REFUSED) {
                    throw new Failure(
                            "the database refuses more than " + MOST_REFUSED + " rows of one batch: " + told(cause),
                            "that is no longer a bad row or two. Mend the table there, or what is sent to it by "
                                    + "`columns`; nothing of the batch was written");
                }
            }
        }
        try {
            connection.releaseSavepoint(savepoint);
        } catch (SQLFeatureNotSupportedException unsupported) {
            // The savepoint ends with the transaction.
        }
    }

    private void put(List<Row> rows) throws SQLException {
        boolean deletes = false;
        boolean upserts = false;
        delete.clearBatch();
        if (upsert != null) {
            upsert.clearBatch();
        }
        for (Row row : rows) {
            if (row.getBoolean(columns.size() + 1)) {
                keys(delete, 1, row);
                delete.addBatch();
                deletes = true;
            } else if (upsert != null) {
                values(upsert, row);
                upsert.addBatch();
                upserts = true;
            } else {
                keys(update, values(update, row), row);
                if (update.executeUpdate() == 0) {
                    values(insert, row);
                    insert.executeUpdate();
                }
            }
        }
        if (deletes) {
            delete.executeBatch();
        }
        if (upserts) {
            upsert.executeBatch();
        }
    }

    private int values(PreparedStatement statement, Row row) throws SQLException {
        for (int i = 0; i < columns.size(); i++) {
            columns.get(i).bind(statement, i + 1, row, i, dialect);
        }
        return columns.size() + 1;
    }

    private void keys(PreparedStatement statement, int at, Row row) throws SQLException {
        for (int i = 0; i < columns.size(); i++) {
            if (columns.get(i).key) {
                columns.get(i).bind(statement, at++, row, i, dialect);
            }
        }
    }

    private static long weight(Row row) {
        long weight = 0;
        for (int i = 0; i < row.size(); i++) {
            Object value = row.get(i);
            weight += value instanceof String text ? text.length() : value instanceof byte[] bytes ? bytes.length : 8;
        }
        return weight;
    }

    private static SQLException innermost(SQLException error) {
        SQLException innermost = error;
        while (innermost instanceof BatchUpdateException && innermost.getNextException() != null) {
            innermost = innermost.getNextException();
        }
        return innermost;
    }

    private static boolean ofARow(SQLException error) {
        String state = error.getSQLState();
        return error instanceof SQLDataException
                || error instanceof SQLIntegrityConstraintViolationException
                || (state != null && state.length() >= 2
                        && (OF_A_ROW.contains(state.substring(0, 2)) || state.equals(RAISED)));
    }

    private static String told(SQLException error) {
        String message = String.valueOf(error.getMessage()).replace("\u0000", "");
        return message.length() <= MESSAGE ? message : message.substring(0, MESSAGE) + "…";
    }

    @Override
    public void close() throws SQLException {
        for (PreparedStatement statement : new PreparedStatement[] {upsert, update, insert, delete}) {
            if (statement != null) {
                statement.close();
            }
        }
    }
}
