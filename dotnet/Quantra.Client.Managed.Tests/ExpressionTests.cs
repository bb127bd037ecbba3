using System.Text;

namespace Quantra.Client.Managed.Tests;

public sealed class ExpressionTests
{
    private const int Rows = 20;

    private static readonly Dictionary<string, Tensor> Arrays = FixtureFiles.Arrays("expressions.safetensors.gz");

    private static readonly (string Text, string Canonical, int Lookback)[] Lines =
    [
        .. Encoding.UTF8.GetString(FixtureFiles.Read("expressions.txt.gz")).Split('\n', StringSplitOptions.RemoveEmptyEntries)
            .Select(line => line.Split('\t'))
            .Select(parts => (parts[0], parts[1], int.Parse(parts[2], System.Globalization.CultureInfo.InvariantCulture))),
    ];

    [Fact]
    public void A_thousand_random_expressions_have_the_canonical_text_of_Python()
    {
        Assert.Equal(1000, Lines.Length);
        foreach (var (text, canonical, _) in Lines)
        {
            Assert.Equal(canonical, ExpressionParser.Parse(text, FieldFormulas.Observed).ToString());
            Assert.Equal(canonical, ExpressionParser.Parse(canonical, FieldFormulas.Observed).ToString());
        }
    }

    [Fact]
    public void A_thousand_random_expressions_have_the_values_of_Python()
    {
        var columns = FixtureFiles.Group(Arrays, "bars.");
        var expected = Arrays["values"].ToDouble();
        for (var k = 0; k < Lines.Length; k++)
        {
            var plan = new EvaluationPlan([ExpressionParser.Parse(Lines[k].Text, FieldFormulas.Observed)]);
            Assert.Equal(Lines[k].Lookback, plan.Lookback);
            var values = new double[Rows];
            plan.Evaluate(name => columns[name], Rows, values);
            var size = values.Where(double.IsFinite).Select(Math.Abs).DefaultIfEmpty().Max();
            FixtureFiles.AssertClose(expected.AsSpan(k * Rows, Rows), values, _ => size, Lines[k].Text);
        }
    }

    [Fact]
    public void Expressions_evaluated_together_have_the_bits_of_each_alone()
    {
        var columns = FixtureFiles.Group(Arrays, "bars.");
        Expression[] trees = [.. Lines.Take(200).Select(line => ExpressionParser.Parse(line.Text, FieldFormulas.Observed))];
        var together = new double[Rows * trees.Length];
        new EvaluationPlan(trees).Evaluate(name => columns[name], Rows, together);
        for (var k = 0; k < trees.Length; k++)
        {
            var alone = new double[Rows];
            new EvaluationPlan([trees[k]]).Evaluate(name => columns[name], Rows, alone);
            Assert.Equal(alone, Enumerable.Range(0, Rows).Select(row => together[(row * trees.Length) + k]));
        }
    }

    [Theory]
    [InlineData("5", "5")]
    [InlineData("2.50", "2.5")]
    [InlineData("1e-9", "1e-9")]
    [InlineData("0.0001", "0.0001")]
    [InlineData("0.00001", "1e-5")]
    [InlineData("1e15", "1000000000000000")]
    [InlineData("2e15", "2000000000000000.0")]
    [InlineData("1e16", "1e16")]
    [InlineData("1.5e300", "1.5e300")]
    [InlineData("123456789.125", "123456789.125")]
    public void Numbers_are_written_as_the_shortest_decimals(string text, string canonical) =>
        Assert.Equal($"$close * {canonical}", ExpressionParser.Parse($"$close * {text}", FieldFormulas.Observed).ToString());

    [Theory]
    [InlineData("$close / ($close - $open)", "only rounding")]
    [InlineData("$close / 0", "division by zero")]
    [InlineData("Ref($close, -1)", "whole number")]
    [InlineData("Mean($close, 0)", "from 1 to 1000")]
    [InlineData("Mean(3, 5)", "looks back over a series")]
    [InlineData("($close + 1", "expected ')' to close")]
    [InlineData("Mean($close)", "arguments")]
    [InlineData("Foo($close)", "unknown operator Foo")]
    [InlineData("$vwap", "unknown field $vwap")]
    [InlineData("1 + 2", "at least one field")]
    [InlineData("$close +", "the end")]
    [InlineData("$close # 2", "unexpected '#'")]
    [InlineData("Ref(Ref(Ref($close, 1000), 1000), 1)", "looks back 2001 bars")]
    public void Invalid_expressions_are_rejected_with_the_reason(string text, string problem)
    {
        var error = Assert.Throws<QuantraException>(() => ExpressionParser.Parse(text, FieldFormulas.Observed));
        Assert.Equal(QuantraReason.ExpressionInvalid, error.Reason);
        Assert.Contains(problem, error.Message, StringComparison.Ordinal);
    }

    [Fact]
    public void Deep_nesting_is_rejected() => Assert.Contains(
        "nested at most 32 deep",
        Assert.Throws<QuantraException>(() => ExpressionParser.Parse(new string('(', 500) + "$close", FieldFormulas.Observed)).Message,
        StringComparison.Ordinal);
}
