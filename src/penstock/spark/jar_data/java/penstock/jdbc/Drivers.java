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
 * Connections. A driver that Penstock fetched lies in jars of its own, which are not on the session's class path: only
 * projects with such a sink need it. Every other one is found where the session's jars are.
 */
final class Drivers {
    private static final Map<List<String>, List<Driver>> LOADED = new ConcurrentHashMap<>();

    private Drivers() {}

    static Connection connect(List<String> jars, String url, Properties properties) throws SQLException {
        if (!jars.isEmpty()) {
            for (Driver driver : LOADED.computeIfAbsent(List.copyOf(jars), Drivers::load)) {
                Connection made = driver.connect(url, properties);
                if (made != null) {
                    return made;
                }
            }
        }
        return DriverManager.getConnection(url, properties);
    }

    private static List<Driver> load(List<String> jars) {
        try {
            URL[] places = new URL[jars.size()];
            for (int i = 0; i < places.length; i++) {
                places[i] = Path.of(jars.get(i)).toUri().toURL();
            }
            // It stays open as long as the JVM: connections load classes from it at any time.
            @SuppressWarnings("resource")
            ClassLoader loader = new URLClassLoader(places, Drivers.class.getClassLoader());
            List<Driver> found = new ArrayList<>();
            for (Driver driver : ServiceLoader.load(Driver.class, loader)) {
                if (driver.getClass().getClassLoader() == loader) {
                    found.add(driver);
                }
            }
            return found;
        } catch (java.net.MalformedURLException error) {
            throw new IllegalArgumentException(error);
        }
    }
}
