"""Feature expressions: parsing, rendering, look-back, and error positions."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictor.errors import ExpressionError
from predictor.features import KNOWN, OBSERVED, parse
from predictor.features.expression import Binary, Call, Expression, Field, Negative, Number
from predictor.features.operators import OPERATORS


def test_operators_bind_as_in_arithmetic() -> None:
    tree = parse("$open + 2 * -$close / ($high - $low + 1e-9 * $close) - 1", OBSERVED)
    quotient = Binary(
        "/",
        Binary("*", Number(2.0), Negative(Field("close"))),
        Binary("+", Binary("-", Field("high"), Field("low")), Binary("*", Number(1e-9), Field("close"))),
    )
    assert tree == Binary("-", Binary("+", Field("open"), quotient), Number(1.0))


def test_a_call_holds_series_and_windows() -> None:
    assert parse("Corr($close,Ref($volume , 1),20)", OBSERVED) == Call(
        "Corr", (Field("close"), Call("Ref", (Field("volume"),), (1,))), (20,)
    )


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("$close>Ref($close,1)", "$close > Ref($close, 1)"),
        ("($close<$open)+($low>$open)", "($close < $open) + ($low > $open)"),
        ("($close>$open)<($close+$low)", "($close > $open) < $close + $low"),
        ("Quantile($close,20,.80)", "Quantile($close, 20, 0.8)"),
        ("Plus($close, 0.000000000001)", "Plus($close, 1e-12)"),
        ("( ($close) )", "$close"),
        ("$close-($open-$low)", "$close - ($open - $low)"),
        ("($close-$open)-$low", "$close - $open - $low"),
        ("--$close*2.50", "--$close * 2.5"),
        ("-($close*2)", "-($close * 2)"),
        ("EMA( $close,12,060 )", "EMA($close, 12, 60)"),
        ("$close*0.000000001+1E+3", "$close * 1e-9 + 1000"),
        ("$close*1e22 + .5", "$close * 1e22 + 0.5"),
    ],
)
def test_the_canonical_text_is_fully_resolved(text: str, canonical: str) -> None:
    assert str(parse(text, OBSERVED)) == canonical


NUMBERS = st.floats(min_value=1e-300, max_value=1e300).map(Number)
LEVELS: st.SearchStrategy[Expression] = st.sampled_from(sorted(OBSERVED.formulas)).map(Field)


def calls_over(series: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    """A call of an operator with short windows."""

    def call(name: str) -> st.SearchStrategy[Expression]:
        operator = OPERATORS[name]
        windows = st.tuples(*(st.integers(max(1, window.smallest), 9) for window in operator.windows))
        numbers = st.tuples(*(st.floats(number.smallest, number.largest) for number in operator.numbers))
        return st.builds(Call, st.just(name), st.tuples(*(series for _ in operator.series)), windows, numbers)

    return st.sampled_from(sorted(OPERATORS)).flatmap(call)


def grown(series: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    pair = st.sampled_from(["+", "-", "*", ">", "<"])
    return st.one_of(
        st.builds(Negative, series),
        st.builds(Binary, pair, series, series | NUMBERS),
        st.builds(Binary, pair, NUMBERS, series),
        st.builds(Binary, st.just("/"), series, LEVELS | NUMBERS),
        calls_over(series),
    )


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.recursive(LEVELS, grown, max_leaves=12))
def test_any_tree_reads_back_from_its_text(tree: Expression) -> None:
    assert parse(str(tree), OBSERVED) == tree


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("", 1, "expected a number, a field or an operator, found the end"),
        ("$close +", 9, "found the end"),
        ("+$close", 1, "found '+'"),
        ("$close $open", 8, "expected an operator or the end"),
        ("($close", 8, "expected ')' to close the parenthesis of column 1"),
        ("$close)", 7, "expected an operator or the end"),
        ("$closed", 1, "unknown field $closed; observed fields are $open, $high"),
        ("$weekday", 1, "unknown field $weekday"),
        ("1 + close", 5, "did you mean $close?"),
        ("Average($close, 5)", 1, "unknown operator Average; use one of Ref, Delta"),
        ("Mean", 5, "expected '(' after Mean: Mean(x, n)"),
        ("Mean($close)", 12, "Mean(x, n) has 2 arguments, found 1"),
        ("Mean()", 6, "Mean(x, n) has 2 arguments, found 0"),
        ("Mean($close, 5, 6)", 15, "expected ')' after the last argument"),
        ("EMA($close, 12)", 15, "EMA(x, n, taps) has 3 arguments, found 2"),
        ("Mean($close 5)", 13, "expected ','"),
        ("Mean($close, 5.0)", 14, "n of Mean(x, n) must be a whole number from 1 to 1000, found '5.0'"),
        ("Mean($close, 5+1)", 14, "not an expression"),
        ("Mean($close, $open)", 14, "must be a whole number"),
        ("Mean($close, 0)", 14, "must be a whole number from 1 to 1000, but is 0"),
        ("Mean($close, 1001)", 14, "but is 1001"),
        ("Std($close, 1)", 13, "from 2 to 1000"),
        ("Ref($close, -1)", 13, "would read the future"),
        ("Delta($close, -5)", 15, "would read the future"),
        ("Mean(5, 3)", 6, "looks back over a series, but this is a number"),
        ("1 + 2", 1, "must read at least one field"),
        ("$close / 0", 10, "division by zero"),
        ("$close / 0.0e5", 10, "division by zero"),
        ("$close * 1e999", 10, "too large"),
        ("$close ** 2", 9, "found '*'"),
        ("$close % 2", 8, "unexpected '%'"),
        ("$close >= 2", 9, "unexpected '='"),
        ("$close > 2 > $open", 12, "expected an operator or the end, found '>'"),
        ("Quantile($close, 5)", 19, "Quantile(x, n, level) has 3 arguments, found 2"),
        ("Quantile($close, 5, 80)", 21, "level of Quantile(x, n, level) must be a number from 0 to 1, but is 80"),
        ("Quantile($close, 5, $open)", 21, "must be a number from 0 to 1, found '$open'"),
        ("Plus($close, 1e-13)", 14, "c of Plus(x, c) must be a number from 1e-12 to 1, but is 1e-13"),
        ("$clo\u0455e", 5, "unexpected "),
        ("$close * \u0661", 10, "unexpected "),
    ],
)
def test_a_mistake_is_shown_at_its_column(text: str, column: int, problem: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text, OBSERVED)
    assert problem in caught.value.message
    assert caught.value.metadata["position"] == str(column - 1)
    message, shown, caret = caught.value.message.split("\n")
    assert f"(column {column})" in message
    assert shown == f"  {text}"
    assert caret == " " * (column + 1) + "^"


@pytest.mark.parametrize(
    "denominator",
    [
        "($high - $low)",
        "Std($close, 20)",
        "Var($close, 20)",
        "Delta($close, 5)",
        "Slope($close, 5)",
        "Rsquare($close, 5)",
        "Resi($close, 5)",
        "($close > $open)",
        "(((Std($close, 20))))",
        "-Std($close, 20)",
        "Abs($high - $low)",
        "Sqrt(Var($close, 20))",
        "Abs(-(-Std($close, 20)))",
        "Ref(Std($close, 20), 1)",
        "(2 * Std($close, 20))",
        "(Std($close, 20) / $close)",
        "(Std($close, 20) + 1e-9)",
        "(Std($close, 20) + Std($open, 20))",
        "Greater(Std($close, 20), 0.001)",
        "Less(Std($close, 20), $close)",
        "($close * 0)",
        "(0 * $close + 0)",
        "Sign($close)",
    ],
)
def test_a_denominator_that_vanishes_at_flat_prices_is_refused(denominator: str) -> None:
    with pytest.raises(ExpressionError, match="only rounding at flat prices") as caught:
        parse(f"$close / {denominator}", OBSERVED)
    assert int(caught.value.metadata["position"]) >= len("$close / ")


@pytest.mark.parametrize(
    "denominator",
    [
        "(Std($close, 20) + 1e-9 * Mean($close, 20))",
        "(1e-9 * $close + Abs($high - $low))",
        "($high - $low + 1e-9 * $close)",
        "Greater($high - $low, 1e-9 * $close)",
        "Plus($high - $low, 1e-12)",
        "Mean($volume, 20)",
        "Ref($close, 1)",
        "4",
        "(2 * 3)",
        "(1 / $close)",
    ],
)
def test_a_denominator_with_something_of_the_prices_size_is_taken(denominator: str) -> None:
    parse(f"$open / {denominator}", OBSERVED)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("(" * 900 + "$close" + ")" * 900, "nested at most 32 deep"),
        ("-" * 1900 + "$close", "nested at most 32 deep"),
        ("Abs(" * 300 + "$close" + ")" * 300, "nested at most 32 deep"),
        ("$close" + "+1" * 40, "nested at most 32 deep; group long sums"),
        ("$close" + " " * 2000, "at most 2000 characters"),
        ("Ref(" * 3 + "$close" + ", 1000)" * 3, "looks back 2001 bars, at most 2000"),
        ("Mean(Ref(Ref($close, 1000), 1000), 2)", "looks back 2001 bars"),
    ],
)
def test_endless_expressions_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ExpressionError, match=problem):
        parse(text, OBSERVED)


def test_a_text_whose_canonical_form_could_not_be_read_back_is_refused() -> None:
    """An artifact stores the canonical text: here 1000 characters become 2700 with spaces and zeros."""
    group = f"({'+'.join(['$low*1e15'] * 16)})"
    parse("+".join([group] * 4), OBSERVED)
    with pytest.raises(ExpressionError, match=r"in canonical form it has \d+ characters, at most 2000 are allowed"):
        parse("+".join([group] * 7), OBSERVED)


def test_the_caret_of_a_long_look_back_is_at_the_operator_that_exceeds_it() -> None:
    with pytest.raises(ExpressionError) as caught:
        parse("$close + Mean(Ref(Ref($close, 1000), 1000), 2)", OBSERVED)
    assert caught.value.metadata["position"] == str(len("$close + Mean("))


def test_too_many_nodes_are_refused() -> None:
    group = "(" + "+".join(["1"] * 15) + ")"  # 29 nodes
    parse("+".join(["$low", *[group] * 16]), OBSERVED)
    with pytest.raises(ExpressionError, match="at most 500 nodes"):
        parse("+".join(["$low", *[group] * 17]), OBSERVED)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "Mean.__class__($close, 5)",
        "lambda: 1",
        "$close; $open",
        "$close\x00",
        "$close[0]",
        "Mean($close, 5) if 1 else 2",
        "f'{$close}'",
        json.dumps({"expression": "$close"}),
    ],
)
def test_code_is_not_an_expression(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse(text, OBSERVED)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.text(alphabet="$closeMeanRf(),.+-*/ 0159\n\t\u00e9", max_size=60))
def test_any_text_is_either_read_or_refused(text: str) -> None:
    try:
        tree = parse(text, OBSERVED)
    except ExpressionError:
        return
    assert parse(str(tree), OBSERVED) == tree


def test_calendar_features_read_calendar_fields_only() -> None:
    assert str(parse("$weekday/4-0.5", KNOWN)) == "$weekday / 4 - 0.5"
    with pytest.raises(ExpressionError, match=r"known fields are \$weekday, \$sessions_to_month_end"):
        parse("$close", KNOWN)


@pytest.mark.parametrize("value", [-1.0, -0.0, float("nan"), float("inf")])
def test_a_number_without_a_text_form_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="finite and not negative"):
        Number(value)
