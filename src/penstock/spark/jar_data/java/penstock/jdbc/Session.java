package penstock.jdbc;

import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.List;
import java.util.Properties;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;

/** One transaction with the target of a sink: what is not committed when it is closed has not happened. */
public final class Session implements AutoCloseable {
    private final Connection connection;
    private final Dialect dialect;
    private final Table table;
    private final Positions positions;
    private long written;
    private long aside;

    private Session(Connection connection, String sink, String place) throws SQLException {
        this.connection = connection;
        dialect = Dialect.of(connection.getMetaData().getDatabaseProductName());
        table = new Table(connection, dialect, place);
        positions = new Positions(connection, table, dialect, sink, place);
    }

    public static Session open(List<String> jars, String url, Properties properties, String sink, String place)
            throws SQLException {
        Connection connection = Drivers.connect(jars, url, properties);
        try {
            connection.setAutoCommit(false);
            Session made = new Session(connection, sink, place);
            if (made.dialect == Dialect.POSTGRES) {
                try (Statement statement = connection.createStatement()) {
                    statement.execute("SET TIME ZONE 'UTC'"); // what a column without a zone is given
                }
            }
            return made;
        } catch (SQLException | RuntimeException error) {
            connection.close();
            throw error;
        }
    }

    /** The names of the columns there; the table, and those of Penstock, are made if they are not there. */
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
