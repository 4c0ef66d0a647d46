package penstock;

import java.io.IOException;
import java.nio.file.Files;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system, checksums included, without its processes: Hadoop runs `chmod` for every file that it
 * makes, eight times in a small batch. Here the mode is set by a call, and only where it is not the wanted one already.
 */
public class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new Raw());
    }

    public static class Raw extends RawLocalFileSystem {
        private static final int RIGHTS = 01777;
        // chmod, given four digits, leaves a folder's set-group-id alone too
        private static final int INHERITED = 06000;

        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {
            java.nio.file.Path file = pathToFile(path).toPath();
            int found = (Integer) Files.getAttribute(file, "unix:mode") & (RIGHTS | INHERITED);
            int wanted = (found & INHERITED) | (permission.toShort() & RIGHTS);
            if (found != wanted) {
                Files.setAttribute(file, "unix:mode", wanted);
            }
        }
    }
}
