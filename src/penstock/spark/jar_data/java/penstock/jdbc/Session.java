package penstock.jdbc;

import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.List;
import java.util.Properties;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;

/** One transaction with the target of a sink, opened by sinks/jdbc.py: closing it undoes what was not committed. */
public final class Session implements AutoCloseable {
    private final Connection connection;
    private final Dialect dialect;
    private final Table table;
    private final Positions positions;
    private long written;
    private long aside;

    private Session(Connection connection, String sink, String target) throws SQLException {
        this.connection = connection;
        dialect = Dialect.of(connection.getMetaData().getDatabaseProductName());
        table = new Table(connection, dialect, target);
        positions = new Positions(connection, table, dialect, sink, target);
    }

    public static Session open(List<String> jars, String url, Properties properties, String sink, String target)
            throws SQLException {
        Connection connection = Drivers.connect(jars, url, properties);
        try {
            connection.setAutoCommit(false);
            Session session = new Session(connection, sink, target);
            if (session.dialect == Dialect.POSTGRES) {
                try (Statement statement = connection.createStatement()) {
                    statement.execute("SET TIME ZONE 'UTC'"); // for columns without a time zone
                }
            }
            return session;
        } catch (SQLException | RuntimeException error) {
            connection.close();
            throw error;
        }
    }

    /**
     * The names of the columns in the table. Creates the table if `create`, and Penstock's own tables, where missing.
     */
    public List<String> settle(List<Column> columns, boolean create) throws SQLException, Failure {
        positions.create();
        return table.settle(columns, create);
    }

    public List<String> lock() throws SQLException {
        return positions.lock();
    }

    public List<String[]> apply(Dataset<Row> changes, List<Column> columns, List<String> names)
            throws SQLException, Failure {
        try (Rows rows = new Rows(connection, dialect, table.place(), columns, names)) {
            rows.write(changes.toLocalIterator());
            written = rows.written();
            aside = rows.aside();
            positions.refuse(rows.refused());
            return rows.refused();
        }
    }

    public long written() {
        return written;
    }

    public long aside() {
        return aside;
    }

    public List<String[]> refused() throws SQLException {
        return positions.refused();
    }

    public void move(String ledger, long generation, long batch, String before, String after) throws SQLException {
        positions.move(ledger, generation, batch, before, after, written);
    }

    public void commit() throws SQLException {
        connection.commit();
    }

    @Override
    public void close() throws SQLException {
        try {
            connection.rollback();
        } finally {
            connection.close();
        }
    }
}
