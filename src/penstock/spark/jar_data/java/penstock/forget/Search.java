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
 * Searches files of any kind for the names of data subjects, for `LakeSearch` in erasure/search.py. In a Parquet file
 * it decodes every value of every column, including rows that are only marked as deleted, and searches dictionaries,
 * statistics, indexes and footer. Every other file is decompressed and searched as bytes.
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

    /** One line of JSON per file; `files` holds one path per line. */
    public static String files(SparkSession spark, String files, List<String> names) {
        var context = JavaSparkContext.fromSparkContext(spark.sparkContext());
        var settings = new Configuration(spark.sparkContext().hadoopConfiguration());
        // files are read without their checksums: a wrong checksum must not hide what a file holds
        settings.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem");
        settings.setBoolean("fs.file.impl.disable.cache", true);
        List<String> paths = files.lines().toList();
        int tasks = Math.max(1, Math.min(paths.size(),
                Math.max(context.defaultParallelism(), paths.size() / FILES_PER_TASK)));
        return String.join(
                "\n", context.parallelize(paths, tasks).mapPartitions(new Search(names, settings)).collect());
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
        var sightings = new Sightings(prepared);
        long[] bytes = {0};
        String trouble = null;
        try {
            Path path = new Path(name.contains("://") ? name : "file://" + escaped(name));
            FileSystem system = path.getFileSystem(settings.value());
            if (!system.exists(path)) {
                return sightings.line(name, 0, "gone");
            }
            if (name.endsWith(PARQUET)) {
                bytes[0] = parquet(system, path, sightings);
            } else if (name.endsWith(SORTED)) {
                bytes[0] = sorted(system, path, sightings);
            } else {
                try (InputStream stream = new BufferedInputStream(system.open(path), CHUNK)) {
                    stream(stream, sightings, bytes, 0);
                }
            }
        } catch (Exception | LinkageError error) {
            trouble = error.getClass().getSimpleName();
        }
        return sightings.line(name, bytes[0], trouble);
    }

    /** An absolute path on this machine: Hadoop's Path would interpret parts of a plain text as a URI. */
    private static String escaped(String name) {
        return new File(name).getAbsolutePath();
    }

    private long parquet(FileSystem system, Path path, Sightings sightings) throws IOException {
        long size;
        long pagesEnd = 0;
        try (ParquetFileReader reader = ParquetFileReader.open(HadoopInputFile.fromPath(path, settings.value()))) {
            size = reader.getFile() == null ? 0 : system.getFileStatus(path).getLen();
            var writer = version(reader.getFileMetaData().getCreatedBy());
            List<BlockMetaData> blocks = reader.getRowGroups();
            for (int index = 0; index < blocks.size(); index++) {
                BlockMetaData block = blocks.get(index);
                pagesEnd = Math.max(pagesEnd, block.getStartingPos() + block.getCompressedSize());
                PageReadStore pages = reader.readRowGroup(index);
                for (var chunk : block.getColumns()) {
                    sightings.in(named(chunk.getPath().toArray()));
                    ColumnDescriptor column =
                            reader.getFileMetaData().getSchema().getColumnDescription(chunk.getPath().toArray());
                    if (pages != null) {
                        values(column, pages, writer, sightings);
                    }
                    statistics(reader, chunk, sightings);
                }
            }
        }
        pagesEnd = Math.min(pagesEnd, Math.max(0, size - FOOTER));
        sightings.in("(footer)");
        try (FSDataInputStream file = system.open(path)) {
            file.seek(pagesEnd);
            sightings.footer(file.readAllBytes());
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

    private static void statistics(ParquetFileReader reader, ColumnChunkMetaData chunk, Sightings sightings)
            throws IOException {
        PrimitiveType type = chunk.getPrimitiveType();
        var bounds = chunk.getStatistics();
        if (bounds != null && bounds.hasNonNullValue()) {
            coded(type, ByteBuffer.wrap(bounds.getMinBytes()), sightings);
            coded(type, ByteBuffer.wrap(bounds.getMaxBytes()), sightings);
        }
        var index = reader.readColumnIndex(chunk);
        if (index != null) {
            for (var least : index.getMinValues()) {
                coded(type, least, sightings);
            }
            for (var greatest : index.getMaxValues()) {
                coded(type, greatest, sightings);
            }
        }
    }

    /** A value in the encoding of statistics. */
    private static void coded(PrimitiveType type, ByteBuffer value, Sightings sightings) {
        ByteBuffer bytes = value.duplicate().order(ByteOrder.LITTLE_ENDIAN);
        if (!bytes.hasRemaining()) {
            return;
        }
        switch (type.getPrimitiveTypeName()) {
            case INT32 -> whole(type, bytes.getInt(), sightings);
            case INT64 -> whole(type, bytes.getLong(), sightings);
            case FLOAT -> sightings.number(bytes.getFloat());
            case DOUBLE -> sightings.number(bytes.getDouble());
            case BINARY, FIXED_LEN_BYTE_ARRAY -> {
                byte[] copy = new byte[bytes.remaining()];
                bytes.get(copy);
                if (type.getLogicalTypeAnnotation() instanceof DecimalLogicalTypeAnnotation) {
                    binary(type, copy, sightings);
                } else {
                    sightings.bound(copy);
                }
            }
            default -> {}
        }
    }

    private static void values(
            ColumnDescriptor column, PageReadStore pages, VersionParser.ParsedVersion writer, Sightings sightings) {
        var values = new Values(column.getPrimitiveType(), sightings);
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

    private static void whole(PrimitiveType type, long value, Sightings sightings) {
        LogicalTypeAnnotation annotation = type.getLogicalTypeAnnotation();
        if (annotation instanceof DecimalLogicalTypeAnnotation decimal) {
            sightings.number(BigDecimal.valueOf(value, decimal.getScale()));
        } else if (annotation == null || annotation instanceof IntLogicalTypeAnnotation) {
            sightings.number(value); // with any other annotation it is a date or a time
        }
    }

    private static void binary(PrimitiveType type, byte[] value, Sightings sightings) {
        if (type.getLogicalTypeAnnotation() instanceof DecimalLogicalTypeAnnotation decimal) {
            sightings.number(new BigDecimal(new BigInteger(value), decimal.getScale()));
        } else {
            sightings.value(value);
        }
    }

    /** The column's name in the table, without the levels that Parquet adds for lists and maps. */
    private static String named(String[] path) {
        var names = new ArrayList<String>();
        for (int level = 0; level < path.length; level++) {
            boolean isLast = level == path.length - 1;
            if (level > 0 && !isLast && path[level].equals("list") && path[level + 1].equals("element")) {
                level++;
            } else if (level == 0 || isLast || !path[level].equals("key_value")) {
                names.add(path[level]);
            }
        }
        return String.join(".", names);
    }

    /** Takes values of any type. Each entry of a dictionary is searched once, the references to it are not. */
    private static final class Values extends PrimitiveConverter {
        private final PrimitiveType type;
        private final Sightings seen;

        Values(PrimitiveType type, Sightings sightings) {
            this.type = type;
            this.seen = sightings;
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

    /** Searches compressed content after decompressing it, down to three levels. */
    private static void stream(InputStream stream, Sightings sightings, long[] bytes, int depth) throws IOException {
        stream.mark(UNSIGNED);
        byte[] head = stream.readNBytes(8);
        stream.reset();
        String signature = new String(head, java.nio.charset.StandardCharsets.ISO_8859_1);
        if (depth < 3 && signature.startsWith("LZ4Block")) {
            nested(new LZ4BlockInputStream(stream, false), sightings, bytes, depth);
        } else if (depth < 3 && signature.startsWith("\u001f\u008b")) {
            nested(new GZIPInputStream(stream), sightings, bytes, depth);
        } else if (depth < 3 && signature.startsWith("\u0028\u00b5\u002f\u00fd")) {
            nested(new ZstdInputStream(stream), sightings, bytes, depth);
        } else if (depth < 3 && signature.startsWith("PK\u0003\u0004")) {
            var zip = new ZipInputStream(stream);
            for (var entry = zip.getNextEntry(); entry != null; entry = zip.getNextEntry()) {
                nested(zip, sightings, bytes, depth);
            }
        } else {
            chunks(stream, sightings, bytes, LEAST_PLAIN);
        }
    }

    private static void nested(InputStream inner, Sightings sightings, long[] bytes, int depth) throws IOException {
        stream(new BufferedInputStream(inner), sightings, bytes, depth + 1);
    }

    private static void chunks(InputStream stream, Sightings sightings, long[] bytes, int leastPlain)
            throws IOException {
        byte[] buffer = new byte[CHUNK];
        int overlap = 0;
        for (int read = stream.readNBytes(buffer, 0, CHUNK); read > 0;
                read = stream.readNBytes(buffer, overlap, CHUNK - overlap)) {
            int length = overlap + read;
            bytes[0] += read;
            sightings.bytes(buffer, length, leastPlain);
            overlap = Math.min(OVERLAP, length);
            System.arraycopy(buffer, length - overlap, buffer, 0, overlap);
        }
    }

    /** Searches a RocksDB file, in which Spark keeps state. */
    private static long sorted(FileSystem system, Path path, Sightings sightings) throws Exception {
        org.rocksdb.RocksDB.loadLibrary();
        var copy = Files.createTempFile("search", SORTED);
        try {
            try (InputStream stream = system.open(path)) {
                Files.copy(stream, copy, java.nio.file.StandardCopyOption.REPLACE_EXISTING);
            }
            long bytes = 0;
            try (var options = new Options(); var reader = new SstFileReader(options);
                    var readOptions = new ReadOptions()) {
                reader.open(copy.toString());
                try (var entries = reader.newIterator(readOptions)) {
                    for (entries.seekToFirst(); entries.isValid(); entries.next()) {
                        sightings.bytes(entries.key(), entries.key().length, LEAST_PLAIN);
                        sightings.bytes(entries.value(), entries.value().length, LEAST_PLAIN);
                        bytes += entries.key().length + entries.value().length;
                    }
                    entries.status();
                }
            }
            return bytes;
        } finally {
            Files.deleteIfExists(copy);
        }
    }
}
