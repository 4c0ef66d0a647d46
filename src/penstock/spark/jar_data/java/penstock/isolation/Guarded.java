package penstock.isolation;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.ConditionalExpression;
import org.apache.spark.sql.catalyst.expressions.Expression;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * An expression around another that may raise: the base of Attempt, ErrorOf and Interpreted.
 *
 * Spark computes once what two expressions share, before both and so outside any `try`, where its own TryEval does not
 * help. It leaves alone what is inside a conditional expression without inputs that are always evaluated.
 */
abstract class Guarded extends Expression implements ConditionalExpression, Serializable {
    final Expression inner;

    Guarded(Expression inner) {
        this.inner = inner;
    }

    abstract Expression around(Expression other);

    @Override
    public Seq<Expression> children() {
        return CollectionConverters.asScala(List.of(inner)).toSeq();
    }

    @Override
    public Expression withNewChildrenInternal(IndexedSeq<Expression> children) {
        return around(children.apply(0));
    }

    @Override
    public boolean nullable() {
        return true;
    }

    @Override
    public boolean foldable() {
        return false;
    }

    @Override
    @SuppressWarnings("unchecked")
    public Seq<Expression> alwaysEvaluatedInputs() {
        return (Seq<Expression>) (Seq<?>) Nil$.MODULE$;
    }

    @Override
    public ConditionalExpression withNewAlwaysEvaluatedInputs(Seq<Expression> inputs) {
        return this;
    }

    @Override
    @SuppressWarnings("unchecked")
    public Seq<Seq<Expression>> branchGroups() {
        return (Seq<Seq<Expression>>) (Seq<?>) Nil$.MODULE$;
    }

    @Override
    public String productPrefix() {
        return getClass().getSimpleName();
    }

    @Override
    public int productArity() {
        return 1;
    }

    @Override
    public Object productElement(int index) {
        return inner;
    }

    @Override
    public boolean canEqual(Object other) {
        return getClass().isInstance(other);
    }

    @Override
    public boolean equals(Object other) {
        return canEqual(other) && inner.equals(((Guarded) other).inner);
    }

    @Override
    public int hashCode() {
        return 31 * getClass().getName().hashCode() + inner.hashCode();
    }
}
