package penstock.csv;

import java.io.ByteArrayOutputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Objects;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/**
 * The records of CSV files, each with the number of its first line, for sources/files/lines.py. A record is a line, or
 * several if a quoted cell spans them: it must be closed by a quote before a separator or the end of a line. If no
 * quote closes it up to the end of the file or within a bound, its line is a record of its own, with a fault, and the
 * lines after it are records again, so that one stray quote costs one line and not the rest of the file.
 */
public final class Records implements Iterator<Row> {
    static final int MOST_LINES = 10_000;
    static final int MOST_BYTES = 16 << 20;
    private static final byte[] MARK = {(byte) 0xEF, (byte) 0xBB, (byte) 0xBF};

    /** A line, its line break, and its place. */
    private static final class Line {
        final byte[] text;
        final String end;
        final String file;
        final long row;
        private Boolean open;
        private boolean known;

        Line(byte[] text, String end, String file, long row) {
            this.text = text;
            this.end = end;
            this.file = file;
            this.row = row;
        }

        /** Whether it ends within a quoted cell if it begins within one; null if a quote is wrong. Computed once. */
        Boolean staysOpen(Format format) {
            if (!known) {
                open = format.endsQuoted(text, true);
                known = true;
            }
            return open;
        }

        int size() {
            return text.length + end.length();
        }
    }

    private final Iterator<Row> chunks;
    private final Format format;
    private final List<Line> ahead = new ArrayList<>();
    /** The index of the next line in `ahead`; those before it are used up. */
    private int next;
    /**
     * How many of the next lines, and how many bytes, belong to one file and stay open: a record that begins before
     * them does not end there. Remembered, so that lines which all open a quote cost no more than others.
     */
    private int run;
    private long runBytes;
    private String file;
    private long row;

    private Records(Iterator<Row> chunks, Format format) {
        this.chunks = chunks;
        this.format = format;
    }

    /** `chunks`: the bytes between two line feeds, and the file; no file is in two partitions. */
    public static Dataset<Row> of(Dataset<Row> chunks, Map<String, String> options, String columns) {
        Format format = new Format(options);
        MapPartitionsFunction<Row, Row> apart = partition -> new Records(partition, format);
        return chunks.mapPartitions(apart, Encoders.row(StructType.fromDDL(columns)));
    }

    @Override
    public boolean hasNext() {
        return look();
    }

    @Override
    public Row next() {
        if (!look()) {
            throw new NoSuchElementException();
        }
        Line first = poll();
        byte[] text = first.text;
        if (format.hasQuote(text) && Boolean.TRUE.equals(format.endsQuoted(text, false))) {
            text = joined(first);
        }
        return RowFactory.create(text, first.file, first.row);
    }

    /** The record that begins with this line; the line alone if it is not closed. */
    private byte[] joined(Line first) {
        while (run < MOST_LINES && first.size() + runBytes < MOST_BYTES) {
            if (next + run == ahead.size() && !more()) {
                return first.text;
            }
            Line line = ahead.get(next + run);
            Boolean open = Objects.equals(line.file, first.file) ? line.staysOpen(format) : null;
            if (open == null) {
                return first.text;
            }
            if (!open) {
                return whole(first);
            }
            run++;
            runBytes += line.size();
        }
        return first.text;
    }

    /** The record that is closed by the line after those that stay open. */
    private byte[] whole(Line first) {
        ByteArrayOutputStream record = new ByteArrayOutputStream();
        add(record, first);
        while (run > 0) {
            add(record, poll());
        }
        record.writeBytes(poll().text);
        return record.toByteArray();
    }

    private Line poll() {
        Line line = ahead.get(next);
        ahead.set(next++, null);
        if (run > 0) {
            run--;
            runBytes -= line.size();
        }
        if (2 * next > ahead.size()) {
            ahead.subList(0, next).clear();
            next = 0;
        }
        return line;
    }

    private static void add(ByteArrayOutputStream record, Line line) {
        record.writeBytes(line.text);
        record.writeBytes(line.end.getBytes(java.nio.charset.StandardCharsets.US_ASCII));
    }

    private boolean look() {
        return next < ahead.size() || more();
    }

    /** Adds the lines of the next chunk: a carriage return ends a line as well, alone or before the line feed. */
    private boolean more() {
        if (!chunks.hasNext()) {
            return false;
        }
        Row chunk = chunks.next();
        byte[] text = chunk.getAs(0);
        if (!Objects.equals(file, chunk.getString(1))) {
            file = chunk.getString(1);
            row = 0;
            text = startsWithMark(text) ? Arrays.copyOfRange(text, MARK.length, text.length) : text;
        }
        int start = 0;
        for (int at = 0; at < text.length; at++) {
            if (text[at] == '\r') {
                boolean last = at == text.length - 1;
                ahead.add(new Line(Arrays.copyOfRange(text, start, at), last ? "\r\n" : "\r", file, row++));
                start = at + 1;
                if (last) {
                    return true;
                }
            }
        }
        ahead.add(new Line(start == 0 ? text : Arrays.copyOfRange(text, start, text.length), "\n", file, row++));
        return true;
    }

    private static boolean startsWithMark(byte[] text) {
        return text.length >= MARK.length && Arrays.equals(text, 0, MARK.length, MARK, 0, MARK.length);
    }
}
