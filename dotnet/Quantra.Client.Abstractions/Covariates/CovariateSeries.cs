using System.Globalization;

namespace Quantra.Client;

/// <summary>A column of a covariate file: values, the days they are about, and the days from which they are known.</summary>
/// <remarks>
/// The value at a session is that of the latest day among the rows known by its close. Of several rows about that day, it is the one that
/// became known last. A restated value therefore counts only from the day on which it was known.
/// </remarks>
internal sealed class CovariateSeries
{
    private static readonly Comparer<Statement> ByKnowledge =
        Comparer<Statement>.Create((one, other) => (one.KnownFrom, one.Day).CompareTo((other.KnownFrom, other.Day)));

    private readonly bool _isAboutAll;
    private readonly Dictionary<string, Statement[]> _bySymbol;

    /// <summary>Sorts the statements of each symbol by the day on which they became known, then by the day they are about.</summary>
    /// <param name="name">Name of the column.</param>
    /// <param name="isAboutAll">Whether the file has no symbols and applies to all.</param>
    /// <param name="statements">All rows with a value. The symbol is empty if the file has none.</param>
    /// <exception cref="QuantraException">COVARIATES_INVALID: two rows about one day became known on the same day.</exception>
    public CovariateSeries(string name, bool isAboutAll, IEnumerable<Statement> statements)
    {
        (Name, _isAboutAll) = (name, isAboutAll);
        _bySymbol = statements
            .GroupBy(one => one.Symbol)
            .ToDictionary(group => group.Key, group => group.Order(ByKnowledge).ToArray());
        foreach (var rows in _bySymbol.Values)
            CheckOnce(rows);
    }

    public string Name { get; }

    private string Advice => _isAboutAll ? "keep one, or add a column symbol that tells them apart" : "keep one";

    /// <summary>Returns the values known at the close of each session, [S, T].</summary>
    public double[] AsOf(IReadOnlyList<string> symbols, ReadOnlySpan<DateOnly> sessions)
    {
        var values = new double[symbols.Count * sessions.Length];
        for (var row = 0; row < symbols.Count; row++)
            Fill(values.AsSpan(row * sessions.Length, sessions.Length), sessions, FindRows(symbols[row]), one => one.KnownFrom);
        return values;
    }

    /// <summary>Returns the values of A days, or the last ones before them, as known at the close of one day, [S, A].</summary>
    public double[] OfDays(IReadOnlyList<string> symbols, ReadOnlySpan<DateOnly> days, DateOnly knownBy)
    {
        var values = new double[symbols.Count * days.Length];
        for (var row = 0; row < symbols.Count; row++)
        {
            // a stable sort: rows about one day stay in the order in which they became known
            var heard = FindRows(symbols[row]).Where(one => one.KnownFrom <= knownBy).OrderBy(one => one.Day).ToArray();
            Fill(values.AsSpan(row * days.Length, days.Length), days, heard, one => one.Day);
        }

        return values;
    }

    /// <summary>For each day, takes the row about the latest day among those that count by then; NaN if none.</summary>
    private static void Fill(Span<double> values, ReadOnlySpan<DateOnly> days, Statement[] rows, Func<Statement, DateOnly> countsFrom)
    {
        Statement? latest = null;
        var next = 0;
        for (var index = 0; index < days.Length; index++)
        {
            for (; next < rows.Length && countsFrom(rows[next]) <= days[index]; next++)
            {
                if (latest is null || rows[next].Day >= latest.Day)
                    latest = rows[next];
            }

            values[index] = latest?.Value ?? double.NaN;
        }
    }

    private Statement[] FindRows(string symbol) => _bySymbol.GetValueOrDefault(_isAboutAll ? "" : symbol) ?? [];

    private void CheckOnce(Statement[] rows)
    {
        foreach (var (one, other) in rows.Zip(rows.Skip(1)))
        {
            if (ByKnowledge.Compare(one, other) == 0)
            {
                throw QuantraError.BadCovariates(string.Create(
                    CultureInfo.InvariantCulture,
                    $"covariate {Name}: rows {Math.Min(one.Row, other.Row)} and {Math.Max(one.Row, other.Row)} after the header "
                    + $"give {one.Day:yyyy-MM-dd} two values that became known on the same day; {Advice}")).ToException();
            }
        }
    }

    /// <summary>A row of a covariate file.</summary>
    /// <param name="Symbol">Its symbol; empty = all.</param>
    /// <param name="Day">The day that it is about.</param>
    /// <param name="KnownFrom">The first day by whose close it was known.</param>
    /// <param name="Value">NaN = withdrawn.</param>
    /// <param name="Row">Number of the row, from 1 after the header.</param>
    internal sealed record Statement(string Symbol, DateOnly Day, DateOnly KnownFrom, double Value, int Row);
}
