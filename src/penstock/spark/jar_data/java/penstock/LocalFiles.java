package penstock;

import java.io.IOException;
import java.nio.file.Files;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system, checksums included, without child processes: Hadoop runs `chmod` for every file that it
 * creates, eight times in a small batch. Here a call sets the mode, and only where it differs. Set in
 * plan/spark_settings.py.
 */
public class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new Raw());
    }

    public static class Raw extends RawLocalFileSystem {
        private static final int RIGHTS = 01777;
        // chmod with four digits does not change a folder's set-group-id either
        private static final int INHERITED = 06000;

        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {
            java.nio.file.Path file = pathToFile(path).toPath();
            int current = (Integer) Files.getAttribute(file, "unix:mode") & (RIGHTS | INHERITED);
            int wanted = (current & INHERITED) | (permission.toShort() & RIGHTS);
            if (current != wanted) {
                Files.setAttribute(file, "unix:mode", wanted);
            }
        }
    }
}
