package penstock.delta;

import io.delta.storage.LocalLogStore;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * The Delta log of a table on a local lake, written to beside a runner in another process; maintenance/tables.py
 * selects it. Each commit waits for the table's commit lock, which that runner holds from a batch's first read of the
 * table until its last commit. So files can be rewritten for as long as that takes, and batches do not wait for it.
 */
public final class SharedLog extends LocalLogStore {
    public static final String LAKE = "penstock.lake";
    /** The suffixes of the names of the tables that belong to another, separated by commas. */
    public static final String COMPANIONS = "penstock.companions";
    private static final long LOOK_EVERY = 5;
    private static final long PATIENCE = 600_000;
    /** Never closed: closing a file releases every lock that this process holds on it, through any channel. */
    private static final Map<String, FileChannel> OPEN = new ConcurrentHashMap<>();

    public SharedLog(Configuration configuration) {
        super(configuration);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration configuration)
            throws IOException {
        var file = lockOf(path, configuration.get(LAKE), configuration.getStrings(COMPANIONS, new String[0]));
        if (file == null) {
            super.write(path, actions, overwrite, configuration);
            return;
        }
        FileLock lock = acquire(file);
        try {
            super.write(path, actions, overwrite, configuration);
        } finally {
            if (lock != null) {
                lock.release();
            }
        }
    }

    /** The lock; null if this process holds it already, for more than one commit. */
    private static FileLock acquire(String file) throws IOException {
        var channel = OPEN.get(file);
        if (channel == null) {
            Files.createDirectories(Paths.get(file).getParent());
            channel = OPEN.computeIfAbsent(file, SharedLog::open);
        }
        long deadline = System.currentTimeMillis() + PATIENCE;
        while (true) {
            try {
                var lock = channel.tryLock();
                if (lock != null) {
                    return lock;
                }
            } catch (OverlappingFileLockException heldHere) {
                return null;
            }
            if (System.currentTimeMillis() > deadline) {
                throw new IOException(
                        "another process has held the commit lock " + file + " for " + PATIENCE / 1000 + " s");
            }
            try {
                Thread.sleep(LOOK_EVERY);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                throw new IOException("interrupted while waiting for the commit lock " + file, interrupted);
            }
        }
    }

    private static FileChannel open(String file) {
        try {
            return new RandomAccessFile(file, "rw").getChannel();
        } catch (IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    /**
     * The lock file for a file in the log of a table in the lake: bronze/orders/_delta_log/7.json is part of
     * bronze.orders, and so are the tables that belong to it. Null outside of the lake's tables.
     */
    static String lockOf(Path path, String lake, String[] companions) {
        var folder = path.getParent() == null ? null : path.getParent().getParent();
        var location = folder == null ? "" : folder.toUri().getPath();
        if (lake == null || !location.startsWith(lake + "/") || location.startsWith(lake + "/_penstock/")) {
            return null;
        }
        var table = location.substring(lake.length() + 1).replace('/', '.');
        for (var suffix : companions) {
            if (table.endsWith(suffix)) {
                table = table.substring(0, table.length() - suffix.length());
                break;
            }
        }
        return lake + "/_penstock/locks/" + table + ".commit";
    }
}
