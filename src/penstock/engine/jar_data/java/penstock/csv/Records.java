package penstock.csv;

import java.io.ByteArrayOutputStream;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.Iterator;
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
 * The records of CSV files, each with the number of its first line. A record is a line, or several if a quoted cell goes
 * over them: it must be closed by a quote before a separator or the end of a line. A quote that nothing closes so, up to
 * the end of the file or within a bound, leaves its line a record of its own, with a fault; the lines behind it are
 * records again, so that one stray quote costs one line and not the rest of the file.
 */
public final class Records implements Iterator<Row> {
  static final int MOST_LINES = 10_000;
  static final int MOST_BYTES = 16 << 20;
  private static final byte[] MARK = {(byte) 0xEF, (byte) 0xBB, (byte) 0xBF};

  /** A line, what ended it, and where it stands. */
  private record Line(byte[] text, String end, String file, long row) {}

  private final Iterator<Row> chunks;
  private final Format format;
  private final Deque<Line> ahead = new ArrayDeque<>();
  private String file;
  private long row;

  private Records(Iterator<Row> chunks, Format format) {
    this.chunks = chunks;
    this.format = format;
  }

  /** `chunks`: what stands between two line feeds, as bytes, and the file; no file is in two partitions. */
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
    Line first = ahead.poll();
    byte[] text = first.text;
    if (format.hasQuote(text) && Boolean.TRUE.equals(format.endsQuoted(text, false))) {
      text = joined(first);
    }
    return RowFactory.create(text, first.file, first.row);
  }

  /** The record that begins with this line; the line alone if it is not closed. */
  private byte[] joined(Line first) {
    ByteArrayOutputStream whole = new ByteArrayOutputStream();
    add(whole, first);
    int lines = 0;
    Iterator<Line> known = ahead.iterator();
    while (lines < MOST_LINES && whole.size() < MOST_BYTES) {
      Line next;
      if (known != null && known.hasNext()) {
        next = known.next();
      } else {
        known = null;
        int before = ahead.size();
        if (before <= lines && !more()) {
          return first.text;
        }
        next = nth(lines);
      }
      if (!Objects.equals(next.file, first.file)) {
        return first.text;
      }
      lines++;
      Boolean open = format.endsQuoted(next.text, true);
      if (open == null) {
        return first.text;
      }
      if (!open) {
        whole.writeBytes(next.text);
        for (int i = 0; i < lines; i++) {
          ahead.poll();
        }
        return whole.toByteArray();
      }
      add(whole, next);
    }
    return first.text;
  }

  private Line nth(int number) {
    if (number == ahead.size() - 1) {
      return ahead.peekLast();
    }
    Iterator<Line> lines = ahead.iterator();
    for (int i = 0; i < number; i++) {
      lines.next();
    }
    return lines.next();
  }

  private static void add(ByteArrayOutputStream whole, Line line) {
    whole.writeBytes(line.text);
    whole.writeBytes(line.end.getBytes(java.nio.charset.StandardCharsets.US_ASCII));
  }

  private boolean look() {
    return !ahead.isEmpty() || more();
  }

  /** The lines of the next chunk: a carriage return ends a line as well, alone or before the line feed. */
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
