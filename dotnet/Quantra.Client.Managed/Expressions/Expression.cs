using System.Globalization;
using System.Text;

namespace Quantra.Client.Managed;

/// <summary>A feature expression. Its text is canonical: no default arguments, shortest numbers, fewest parentheses.</summary>
internal abstract record Expression
{
    /// <summary>How tightly the expression binds, from comparisons (1) to atoms (5).</summary>
    private protected virtual int Binding => 5;

    /// <summary>The canonical text.</summary>
    public sealed override string ToString()
    {
        var text = new StringBuilder();
        Write(text);
        return text.ToString();
    }

    /// <summary>Appends the canonical text.</summary>
    private protected abstract void Write(StringBuilder text);

    /// <summary>Appends an operand, in parentheses if it binds less tightly than <paramref name="binding"/>.</summary>
    private protected static void WriteWithin(StringBuilder text, Expression operand, int binding)
    {
        var isLoose = operand.Binding < binding;
        if (isLoose)
            text.Append('(');
        operand.Write(text);
        if (isLoose)
            text.Append(')');
    }

    /// <summary>Formats a number such as 5, 0.25 or 1e-9: the shortest decimals that parse to the same bits.</summary>
    internal static string TextOf(double value)
    {
        if (Math.Floor(value) == value && value <= 1e15)
            return ((long)value).ToString(CultureInfo.InvariantCulture);
        var parts = NumberText.Exact(value).Split('e');
        return parts.Length == 1 ? parts[0] : $"{parts[0]}e{int.Parse(parts[1], CultureInfo.InvariantCulture)}";
    }
}

/// <summary>A constant, finite and not negative.</summary>
internal sealed record NumberExpression(double Value) : Expression
{
    private protected override void Write(StringBuilder text) => text.Append(TextOf(Value));
}

/// <summary>A column of the bars, the calendar or the covariates, named without the dollar sign.</summary>
internal sealed record FieldExpression(string Name) : Expression
{
    private protected override void Write(StringBuilder text) => text.Append('$').Append(Name);
}

/// <summary>The negated operand.</summary>
internal sealed record NegativeExpression(Expression Operand) : Expression
{
    private protected override int Binding => 4;

    private protected override void Write(StringBuilder text)
    {
        text.Append('-');
        WriteWithin(text, Operand, Binding);
    }
}

/// <summary>An element-wise operation on two operands; operators are left-associative, comparisons not associative.</summary>
internal sealed record BinaryExpression(char Operator, Expression Left, Expression Right) : Expression
{
    private protected override int Binding => Operator switch
    {
        '>' or '<' => 1,
        '+' or '-' => 2,
        _ => 3,
    };

    private protected override void Write(StringBuilder text)
    {
        WriteWithin(text, Left, Binding == 1 ? 2 : Binding);
        text.Append(' ').Append(Operator).Append(' ');
        WriteWithin(text, Right, Binding + 1);
    }
}

/// <summary>A named operator over series; windows are the integers of its signature, numbers its other numbers.</summary>
internal sealed record CallExpression(Operator Operator, Expression[] Arguments, int[] Windows, double[] Numbers) : Expression
{
    private protected override void Write(StringBuilder text)
    {
        IEnumerable<string> settings =
            [.. Windows.Select(window => window.ToString(CultureInfo.InvariantCulture)), .. Numbers.Select(TextOf)];
        text.Append(Operator.Name).Append('(');
        for (var k = 0; k < Arguments.Length; k++)
        {
            if (k > 0)
                text.Append(", ");
            WriteWithin(text, Arguments[k], 0);
        }
        foreach (var setting in settings)
            text.Append(", ").Append(setting);
        text.Append(')');
    }
}
