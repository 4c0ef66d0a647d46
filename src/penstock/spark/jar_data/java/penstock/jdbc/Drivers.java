package penstock.jdbc;

import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.Driver;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.ServiceLoader;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Opens connections for Session. A driver that Penstock fetched is in jars of its own, which are not on the session's
 * class path: only projects with such a sink need it. Every other one is found among the session's jars.
 */
final class Drivers {
    private static final Map<List<String>, List<Driver>> LOADED = new ConcurrentHashMap<>();

    private Drivers() {}

    static Connection connect(List<String> jars, String url, Properties properties) throws SQLException {
        if (!jars.isEmpty()) {
            for (Driver driver : LOADED.computeIfAbsent(List.copyOf(jars), Drivers::load)) {
                Connection connection = driver.connect(url, properties);
                if (connection != null) {
                    return connection;
                }
            }
        }
        return DriverManager.getConnection(url, properties);
    }

    private static List<Driver> load(List<String> jars) {
        try {
            URL[] urls = new URL[jars.size()];
            for (int i = 0; i < urls.length; i++) {
                urls[i] = Path.of(jars.get(i)).toUri().toURL();
            }
            // It stays open as long as the JVM, because connections load classes from it at any time.
            @SuppressWarnings("resource")
            ClassLoader loader = new URLClassLoader(urls, Drivers.class.getClassLoader());
            List<Driver> drivers = new ArrayList<>();
            for (Driver driver : ServiceLoader.load(Driver.class, loader)) {
                if (driver.getClass().getClassLoader() == loader) {
                    drivers.add(driver);
                }
            }
            return drivers;
        } catch (java.net.MalformedURLException error) {
            throw new IllegalArgumentException(error);
        }
    }
}
