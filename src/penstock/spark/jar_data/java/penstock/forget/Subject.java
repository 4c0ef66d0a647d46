package penstock.forget;

import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.util.Arrays;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Tests whether a value is the name of a data subject to be erased, of which only keyed hashes are known. Called by
 * tables/subject_columns.py; the hash is `subject_hash` in tables/suppression_list.py. A plan's text shows neither the
 * key nor the hashes.
 */
public final class Subject implements Serializable {
    private static final String HASH = "HmacSHA256";

    private final String subject;
    private final byte[] key;
    private final Set<String> hashes;
    private final Set<Integer> lengths;
    private final String[] steps;
    private transient Set<ByteBuffer> wanted;
    private transient Mac mac;
    private transient Places places;

    private Subject(String subject, byte[] key, List<String> hashes, List<Integer> lengths, List<String> steps) {
        this.subject = subject;
        this.key = key.clone();
        this.hashes = new HashSet<>(hashes);
        this.lengths = new TreeSet<>(lengths);
        this.steps = steps == null ? null : steps.toArray(new String[0]);
    }

    /**
     * A column of true or false. `kind` is text, bytes or number, where a number is passed as text. With `steps` the
     * value is JSON, and the name is at that path. `lengths` are those of the wanted names: a value that is not JSON,
     * or not valid text, is searched for words of these lengths.
     */
    public static Column named(Column value, String kind, String subject, byte[] key, List<String> hashes,
            List<Integer> lengths, List<String> steps) {
        Subject matcher = new Subject(subject, key, hashes, lengths, steps);
        DataType type = kind.equals("bytes") ? DataTypes.BinaryType : DataTypes.StringType;
        Expression self = Literal.fromObject(matcher, new ObjectType(Subject.class));
        var arguments = CollectionConverters.asScala(List.of(ExpressionUtils.expression(value))).toSeq();
        var types = CollectionConverters.asScala(List.<AbstractDataType>of(type)).toSeq();
        return ExpressionUtils.column(
                new Invoke(self, kind, DataTypes.BooleanType, arguments, types, false, false, true));
    }

    public boolean number(UTF8String value) {
        return value != null && isWanted(Canonical.number(value.toString()));
    }

    public boolean text(UTF8String value) {
        return value != null && bytes(value.getBytes());
    }

    public synchronized boolean bytes(byte[] value) {
        if (value == null) {
            return false;
        }
        if (steps != null) {
            places = places == null ? new Places(steps) : places;
            try {
                return places.any(value, this::isWanted);
            } catch (IOException noJson) {
                return inWords(value);
            }
        }
        return UTF8String.fromBytes(value).isValid() ? isWanted(value) : inWords(value);
    }

    private boolean inWords(byte[] value) {
        boolean valid = UTF8String.fromBytes(value).isValid();
        return inWords(new String(value, StandardCharsets.UTF_8))
                || !valid && inWords(new String(value, StandardCharsets.ISO_8859_1));
    }

    private boolean inWords(String text) {
        String plain = text.indexOf('\\') < 0 ? null : Words.unescaped(text);
        for (int length : lengths) {
            if (Words.any(text, length, this::isWanted) || plain != null && Words.any(plain, length, this::isWanted)) {
                return true;
            }
        }
        return false;
    }

    private boolean isWanted(String name) {
        return isWanted(name.getBytes(StandardCharsets.UTF_8));
    }

    private synchronized boolean isWanted(byte[] name) {
        if (wanted == null) {
            prepare();
        }
        mac.update(subject.getBytes(StandardCharsets.UTF_8));
        mac.update((byte) '=');
        return wanted.contains(ByteBuffer.wrap(mac.doFinal(name)));
    }

    private void prepare() {
        try {
            mac = Mac.getInstance(HASH);
            mac.init(new SecretKeySpec(key, HASH));
        } catch (GeneralSecurityException error) {
            throw new IllegalStateException(error);
        }
        Set<ByteBuffer> decoded = new HashSet<>();
        for (String hash : hashes) {
            decoded.add(ByteBuffer.wrap(HexFormat.of().parseHex(hash)));
        }
        wanted = decoded;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Subject that && subject.equals(that.subject) && Arrays.equals(key, that.key)
                && hashes.equals(that.hashes) && Arrays.equals(steps, that.steps);
    }

    @Override
    public int hashCode() {
        return Objects.hash(subject, hashes, Arrays.hashCode(steps));
    }

    @Override
    public String toString() {
        return "penstock_forgotten";
    }
}
