using System.Text.RegularExpressions;

namespace Quantra.Client;

/// <summary>Reads covariates from CSV files, by the rules of <see cref="CovariateSource.ReadCsv"/>.</summary>
internal static partial class CovariateCsvReader
{
    private const string KnownFrom = "known_from";
    private static readonly string[] Keys = [CsvTable.Symbol, "date", KnownFrom];

    /// <summary>Reads a file of dated values: one series per column, and the symbols of the file.</summary>
    public static (IReadOnlyList<CovariateSeries> Series, IReadOnlyList<string> Symbols) ReadDated(string path)
    {
        using var table = CsvTable.Open(path, QuantraReason.CovariatesInvalid);
        if (!table.Has(KnownFrom))
        {
            throw table.Refusal(
                $"column {KnownFrom} is missing, the day on which each row became known; without it, values would be used before they "
                + $"were known. If both days are the same, repeat the date. The file has {string.Join(", ", table.Columns)}");
        }

        table.Require(["date"]);
        var names = FindValueColumns(table);
        if (!table.Has(CsvTable.Symbol))
            RefuseTexts(table);
        var days = (table.Column("date"), table.Column(KnownFrom));
        var moments = new UtcDayResolver();
        var statements = names.ToDictionary(table.Column, _ => new List<CovariateSeries.Statement>());
        foreach (var row in table.Rows())
            Add(row, table.SymbolColumn is null ? "" : row.Symbol(), days, moments, statements);
        var ahead = moments.CountDaysAhead(table);
        string[] symbols = [.. statements.Values.SelectMany(rows => rows).Select(one => one.Symbol).Where(one => one.Length > 0).Distinct()];
        return ([.. names.Select(name => new CovariateSeries(name, !table.Has(CsvTable.Symbol), SelectStatements(table.Column(name))))], symbols);

        IEnumerable<CovariateSeries.Statement> SelectStatements(CsvColumn column) =>
            statements[column].Select(one => ahead == 0 ? one : one with { Day = one.Day.AddDays(ahead) });
    }

    /// <summary>Reads a file of static values: texts by column and symbol; empty = unknown.</summary>
    public static IReadOnlyDictionary<string, Dictionary<string, string>> ReadStatic(string path)
    {
        using var table = CsvTable.Open(path, QuantraReason.CovariatesInvalid);
        if (!table.Has(CsvTable.Symbol))
        {
            string[] likely = [.. table.ReadNamedTexts([]).Where(one => one.Texts.Distinct().Count() == one.Texts.Count).Select(one => one.Name)];
            throw table.Refusal($"no symbol column; it has {string.Join(", ", table.Columns)}; {CsvTable.Renaming(likely)}");
        }

        var columns = FindValueColumns(table).ToDictionary(name => name, _ => new Dictionary<string, string>());
        foreach (var row in table.Rows())
        {
            var symbol = row.Symbol();
            foreach (var (name, texts) in columns)
            {
                if (!texts.TryAdd(symbol, row.Text(table.Column(name))))
                    throw table.Refusal($"symbol {symbol} has several rows, but static values do not change; keep one");
            }
        }

        return columns;
    }

    /// <summary>Rejects text columns in a file without symbols: one of them may be the symbol.</summary>
    private static void RefuseTexts(CsvTable table)
    {
        var texts = table.ReadNamedTexts(Keys);
        if (texts.Count > 0)
        {
            throw table.Refusal(
                $"row 1 after the header, column {texts[0].Name}: '{texts[0].Texts[0]}' is not a number, and the file has no column "
                + $"symbol; {CsvTable.Renaming([.. texts.Select(one => one.Name)])}");
        }
    }

    private static void Add(
        CsvRow row,
        string symbol,
        (CsvColumn Date, CsvColumn KnownFrom) days,
        UtcDayResolver moments,
        Dictionary<CsvColumn, List<CovariateSeries.Statement>> statements)
    {
        var (day, known) = (moments.Day(row, days.Date), row.Day(days.KnownFrom));
        if (row.Text(days.KnownFrom) is { Length: > 10 } text && !Midnight().IsMatch(text[10..]))
        {
            throw row.Refusal(
                days.KnownFrom,
                $"'{text}' has a time of day, but values are used from the close of their day, which may be earlier; write the first day by "
                + "whose close the value was known");
        }

        foreach (var (column, rows) in statements)
        {
            if (row.Text(column).Length > 0) // an empty cell has no value
                rows.Add(new(symbol, day, known, ReadFinite(row, column), row.RowNumber));
        }
    }

    private static double ReadFinite(CsvRow row, CsvColumn column)
    {
        var value = row.Number(column);
        return double.IsInfinity(value)
            ? throw row.Refusal(column, $"'{row.Text(column)}' is not finite; leave the cell empty, or write nan to withdraw the previous value")
            : value;
    }

    private static string[] FindValueColumns(CsvTable table)
    {
        string[] names = [.. table.Columns.Except(Keys)];
        if (names.Length == 0)
            throw table.Refusal("no value columns");
        return Array.Find(names, name => !Name().IsMatch(name)) is { } wrong
            ? throw table.Refusal(
                $"column '{wrong}' must have 1 to 64 lower-case letters, digits and underscores, and start with a letter")
            : names;
    }

    [GeneratedRegex("^[T ]00:00(:00(\\.0+)?)?(Z|[+-][0-9:]+)?$")]
    private static partial Regex Midnight();

    [GeneratedRegex("^[a-z][a-z0-9_]{0,63}$")]
    private static partial Regex Name();
}
