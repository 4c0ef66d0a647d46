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
 * The log of a table on a local lake, written to beside a runner of another process: each commit waits for the table's
 * commit lock, which that runner holds from the first look of a batch until its last commit. So files can be written
 * anew for as long as that takes, and the batches wait for none of it.
 */
public final class SharedLog extends LocalLogStore {
    public static final String LAKE = "penstock.lake";
    /** How the names of the tables that lie beside a table end, with commas between them. */
    public static final String COMPANIONS = "penstock.companions";
    private static final long LOOK_EVERY = 5;
    private static final long PATIENCE = 600_000;
    /** Never closed: closing a file gives up every lock that this process holds on it, by whichever channel. */
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
        FileLock held = acquire(file);
        try {
            super.write(path, actions, overwrite, configuration);
        } finally {
            if (held != null) {
                held.release();
            }
        }
    }

    /** Null if this process holds it already, for more than one commit. */
    private static FileLock acquire(String file) throws IOException {
        var channel = OPEN.get(file);
        if (channel == null) {
            Files.createDirectories(Paths.get(file).getParent());
            channel = OPEN.computeIfAbsent(file, SharedLog::open);
        }
        long deadline = System.currentTimeMillis() + PATIENCE;
        while (true) {
            try {
                var held = channel.tryLock();
                if (held != null) {
                    return held;
                }
            } catch (OverlappingFileLockException ours) {
                return null;
            }
            if (System.currentTimeMillis() > deadline) {
                throw new IOException(
                        "another process has held the commit lock " + file + " for " + PATIENCE / 1000 + " s");
            }
            try {
                Thread.sleep(LOOK_EVERY);
            } catch (InterruptedException stop) {
                Thread.currentThread().interrupt();
                throw new IOException("interrupted while waiting for the commit lock " + file, stop);
            }
        }
    }

    private static FileChannel open(String file) {
        try {
            return new RandomAccessFile(file, "rw").getChannel();
        } catch (IOException gone) {
            throw new java.io.UncheckedIOException(gone);
        }
    }

    /**
     * Of a file in the log of a table in the lake: bronze/orders/_delta_log/7.json is of bronze.orders, and so is what
     * lies beside that table.
     */
    static String lockOf(Path path, String lake, String[] companions) {
        var folder = path.getParent() == null ? null : path.getParent().getParent();
        var place = folder == null ? "" : folder.toUri().getPath();
        if (lake == null || !place.startsWith(lake + "/") || place.startsWith(lake + "/_penstock/")) {
            return null;
        }
        var table = place.substring(lake.length() + 1).replace('/', '.');
        for (var suffix : companions) {
            if (table.endsWith(suffix)) {
                table = table.substring(0, table.length() - suffix.length());
                break;
            }
        }
        return lake + "/_penstock/locks/" + table + ".commit";
    }
}
