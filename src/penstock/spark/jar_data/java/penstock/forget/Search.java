package penstock.forget;

import com.github.luben.zstd.ZstdInputStream;
import java.io.BufferedInputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.zip.GZIPInputStream;
import java.util.zip.ZipInputStream;
import net.jpountz.lz4.LZ4BlockInputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.column.Dictionary;
import org.apache.parquet.column.impl.ColumnReaderImpl;
import org.apache.parquet.column.page.PageReadStore;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.io.api.PrimitiveConverter;
import org.apache.parquet.schema.LogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.DecimalLogicalTypeAnnotation;
import org.apache.parquet.schema.LogicalTypeAnnotation.IntLogicalTypeAnnotation;
import org.apache.parquet.schema.PrimitiveType;
import org.apache.parquet.VersionParser;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.util.SerializableConfiguration;
import org.rocksdb.Options;
import org.rocksdb.ReadOptions;
import org.rocksdb.SstFileReader;

/**
 * Files searched for names, whatever they hold. Of a Parquet file every value of every column is decoded, also of rows
 * that a table has only marked as deleted, with dictionaries, statistics, indexes and footer. Other files are searched
 * as bytes, behind their compression. Python's side is erasure/search.py.
 */
public final class Search implements FlatMapFunction<Iterator<String>, String> {
    private static final String PARQUET = ".parquet", SORTED = ".sst";
    private static final int CHUNK = 8 << 20, OVERLAP = 8 << 10, LEAST_PLAIN = 5, FILES_PER_TASK = 64;
    private static final int FOOTER = 8, UNSIGNED = 64;

    private final List<String> names;
    private final SerializableConfiguration settings;
    private transient Name[] prepared;

    private Search(List<String> names, Configuration settings) {
        this.names = List.copyOf(names);
        this.settings = new SerializableConfiguration(settings);
    }

    /** A line of JSON for each of the files, which are named one a line. */
    public static String files(SparkSession spark, String files, List<String> names) {
        var context = JavaSparkContext.fromSparkContext(spark.sparkContext());
        var settings = new Configuration(spark.sparkContext().hadoopConfiguration());
        // as the files are: a checksum beside them that is wrong hides nothing
        settings.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem");
        settings.setBoolean("fs.file.impl.disable.cache", true);
        List<String> listed = files.lines().toList();
        int tasks = Math.max(1, Math.min(listed.size(),
                Math.max(context.defaultParallelism(), listed.size() / FILES_PER_TASK)));
        return String.join(
                "\n", context.parallelize(listed, tasks).mapPartitions(new Search(names, settings)).collect());
    }

    @Override
    public Iterator<String> call(Iterator<String> files) {
        if (prepared == null) {
            prepared = names.stream().map(Name::new).toArray(Name[]::new);
        }
        var lines = new ArrayList<String>();
        while (files.hasNext()) {
            lines.add(file(files.next()));
        }
        return lines.iterator();
    }

    private String file(String name) {
        var seen = new Sightings(prepared);
        long[] bytes = {0};
        String trouble = null;
        try {
            Path path = new Path(name.contains("://") ? name : "file://" + escaped(name));
            FileSystem system = path.getFileSystem(settings.value());
            if (!system.exists(path)) {
                return seen.line(name, 0, "gone");
            }
            if (name.endsWith(PARQUET)) {
                bytes[0] = parquet(system, path, seen);
            } else if (name.endsWith(SORTED)) {
                bytes[0] = sorted(system, path, seen);
            } else {
                try (InputStream stream = new BufferedInputStream(system.open(path), CHUNK)) {
                    stream(stream, seen, bytes, 0);
                }
            }
        } catch (Exception | LinkageError error) {
            trouble = error.getClass().getSimpleName();
        }
        return seen.line(name, bytes[0], trouble);
    }

    /** A path of this machine as it is: Hadoop's Path of a text takes parts of it for a URI. */
    private static String escaped(String name) {
        return new File(name).getAbsolutePath();
    }

    private long parquet(FileSystem system, Path path, Sightings seen) throws IOException {
        long size;
        long behind = 0;
        try (ParquetFileReader reader = ParquetFileReader.open(HadoopInputFile.fromPath(path, settings.value()))) {
            size = reader.getFile() == null ? 0 : system.getFileStatus(path).getLen();
            var writer = version(reader.getFileMetaData().getCreatedBy());
            List<BlockMetaData> blocks = reader.getRowGroups();
            for (int at = 0; at < blocks.size(); at++) {
                BlockMetaData block = blocks.get(at);
                behind = Math.max(behind, block.getStartingPos() + block.getCompressedSize());
                PageReadStore pages = reader.readRowGroup(at);
                for (var chunk : block.getColumns()) {
                    seen.in(named(chunk.getPath().toArray()));
                    ColumnDescriptor column =
                            reader.getFileMetaData().getSchema().getColumnDescription(chunk.getPath().toArray());
                    if (pages != null) {
                        values(column, pages, writer, seen);
                    }
                    statistics(reader, chunk, seen);
                }
            }
        }
        behind = Math.min(behind, Math.max(0, size - FOOTER));
        seen.in("(footer)");
        try (FSDataInputStream file = system.open(path)) {
            file.seek(behind);
            seen.footer(file.readAllBytes());
        }
        return size;
    }

    private static VersionParser.ParsedVersion version(String writer) {
        try {
            return VersionParser.parse(writer);
        } catch (VersionParser.VersionParseException | RuntimeException unknown) {
            return null;
        }
    }

    private static void statistics(ParquetFileReader reader, ColumnChunkMetaData chunk, Sightings seen)
            throws IOException {
        PrimitiveType type = chunk.getPrimitiveType();
        var bounds = chunk.getStatistics();
        if (bounds != null && bounds.hasNonNullValue()) {
            coded(type, ByteBuffer.wrap(bounds.getMinBytes()), seen);
            coded(type, ByteBuffer.wrap(bounds.getMaxBytes()), seen);
        }
        var index = reader.readColumnIndex(chunk);
        if (index != null) {
            for (var one : index.getMinValues()) {
                coded(type, one, seen);
            }
            for (var one : index.getMaxValues()) {
                coded(type, one, seen);
            }
        }
    }

    /** A value as statistics have it. */
    private static void coded(PrimitiveType type, ByteBuffer value, Sightings seen) {
        ByteBuffer bytes = value.duplicate().order(ByteOrder.LITTLE_ENDIAN);
        if (!bytes.hasRemaining()) {
            return;
        }
        switch (type.getPrimitiveTypeName()) {
            case INT32 -> whole(type, bytes.getInt(), seen);
            case INT64 -> whole(type, bytes.getLong(), seen);
            case FLOAT -> seen.number(bytes.getFloat());
            case DOUBLE -> seen.number(bytes.getDouble());
            case BINARY, FIXED_LEN_BYTE_ARRAY -> {
                byte[] copy = new byte[bytes.remaining()];
                bytes.get(copy);
                if (type.getLogicalTypeAnnotation() instanceof DecimalLogicalTypeAnnotation) {
                    binary(type, copy, seen);
                } else {
                    seen.bound(copy);
                }
            }
            default -> {}
        }
    }

    private static void values(
            ColumnDescriptor column, PageReadStore pages, VersionParser.ParsedVersion writer, Sightings seen) {
        var values = new Values(column.getPrimitiveType(), seen);
        var source = pages.getPageReader(column);
        long count = source.getTotalValueCount();
        var reader = new ColumnReaderImpl(column, source, values, writer);
        for (; count > 0; count--) {
            if (reader.getCurrentDefinitionLevel() == column.getMaxDefinitionLevel()) {
                reader.writeCurrentValueToConverter();
            }
            reader.consume();
        }
    }

    private static void whole(PrimitiveType type, long value, Sightings seen) {
        LogicalTypeAnnotation kind = type.getLogicalTypeAnnotation();
        if (kind instanceof DecimalLogicalTypeAnnotation decimal) {
            seen.number(BigDecimal.valueOf(value, decimal.getScale()));
        } else if (kind == null || kind instanceof IntLogicalTypeAnnotation) {
            seen.number(value); // anything else is a date or a time
        }
    }

    private static void binary(PrimitiveType type, byte[] value, Sightings seen) {
        if (type.getLogicalTypeAnnotation() instanceof DecimalLogicalTypeAnnotation decimal) {
            seen.number(new BigDecimal(new BigInteger(value), decimal.getScale()));
        } else {
            seen.value(value);
        }
    }

    /** A column as a table names it: without what Parquet adds for lists and maps. */
    private static String named(String[] path) {
        var made = new ArrayList<String>();
        for (int at = 0; at < path.length; at++) {
            boolean last = at == path.length - 1;
            if (at > 0 && !last && path[at].equals("list") && path[at + 1].equals("element")) {
                at++;
            } else if (at == 0 || last || !path[at].equals("key_value")) {
                made.add(path[at]);
            }
        }
        return String.join(".", made);
    }

    /** Takes values of any type. Of a dictionary every entry is looked at, once, and what refers to it is not. */
    private static final class Values extends PrimitiveConverter {
        private final PrimitiveType type;
        private final Sightings seen;

        Values(PrimitiveType type, Sightings seen) {
            this.type = type;
            this.seen = seen;
        }

        @Override
        public boolean hasDictionarySupport() {
            return true;
        }

        @Override
        public void setDictionary(Dictionary dictionary) {
            for (int id = 0; id <= dictionary.getMaxId(); id++) {
                switch (type.getPrimitiveTypeName()) {
                    case INT32 -> addInt(dictionary.decodeToInt(id));
                    case INT64 -> addLong(dictionary.decodeToLong(id));
                    case FLOAT -> addFloat(dictionary.decodeToFloat(id));
                    case DOUBLE -> addDouble(dictionary.decodeToDouble(id));
                    case BINARY, FIXED_LEN_BYTE_ARRAY -> addBinary(dictionary.decodeToBinary(id));
                    default -> {}
                }
            }
        }

        @Override
        public void addValueFromDictionary(int id) {}

        @Override
        public void addBinary(Binary value) {
            binary(type, value.getBytesUnsafe(), seen);
        }

        @Override
        public void addBoolean(boolean value) {}

        @Override
        public void addDouble(double value) {
            seen.number(value);
        }

        @Override
        public void addFloat(float value) {
            seen.number(value);
        }

        @Override
        public void addInt(int value) {
            whole(type, value, seen);
        }

        @Override
        public void addLong(long value) {
            whole(type, value, seen);
        }
    }

    /** What is compressed is searched behind that. */
    private static void stream(InputStream stream, Sightings seen, long[] bytes, int depth) throws IOException {
        stream.mark(UNSIGNED);
        byte[] head = stream.readNBytes(8);
        stream.reset();
        String begin = new String(head, java.nio.charset.StandardCharsets.ISO_8859_1);
        if (depth < 3 && begin.startsWith("LZ4Block")) {
            nested(new LZ4BlockInputStream(stream, false), seen, bytes, depth);
        } else if (depth < 3 && begin.startsWith("\u001f\u008b")) {
            nested(new GZIPInputStream(stream), seen, bytes, depth);
        } else if (depth < 3 && begin.startsWith("\u0028\u00b5\u002f\u00fd")) {
            nested(new ZstdInputStream(stream), seen, bytes, depth);
        } else if (depth < 3 && begin.startsWith("PK\u0003\u0004")) {
            var zip = new ZipInputStream(stream);
            for (var entry = zip.getNextEntry(); entry != null; entry = zip.getNextEntry()) {
                nested(zip, seen, bytes, depth);
            }
        } else {
            chunks(stream, seen, bytes, LEAST_PLAIN);
        }
    }

    private static void nested(InputStream inner, Sightings seen, long[] bytes, int depth) throws IOException {
        stream(new BufferedInputStream(inner), seen, bytes, depth + 1);
    }

    private static void chunks(InputStream stream, Sightings seen, long[] bytes, int leastPlain) throws IOException {
        byte[] buffer = new byte[CHUNK];
        int kept = 0;
        for (int read = stream.readNBytes(buffer, 0, CHUNK); read > 0;
                read = stream.readNBytes(buffer, kept, CHUNK - kept)) {
            int length = kept + read;
            bytes[0] += read;
            seen.bytes(buffer, length, leastPlain);
            kept = Math.min(OVERLAP, length);
            System.arraycopy(buffer, length - kept, buffer, 0, kept);
        }
    }

    /** A file of RocksDB, in which Spark keeps state. */
    private static long sorted(FileSystem system, Path path, Sightings seen) throws Exception {
        org.rocksdb.RocksDB.loadLibrary();
        var copy = Files.createTempFile("search", SORTED);
        try {
            try (InputStream stream = system.open(path)) {
                Files.copy(stream, copy, java.nio.file.StandardCopyOption.REPLACE_EXISTING);
            }
            long bytes = 0;
            try (var options = new Options(); var reader = new SstFileReader(options); var how = new ReadOptions()) {
                reader.open(copy.toString());
                try (var rows = reader.newIterator(how)) {
                    for (rows.seekToFirst(); rows.isValid(); rows.next()) {
                        seen.bytes(rows.key(), rows.key().length, LEAST_PLAIN);
                        seen.bytes(rows.value(), rows.value().length, LEAST_PLAIN);
                        bytes += rows.key().length + rows.value().length;
                    }
                    rows.status();
                }
            }
            return bytes;
        } finally {
            Files.deleteIfExists(copy);
        }
    }
}
