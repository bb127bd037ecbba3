namespace Quantra.Client;

/// <summary>Which columns of a table hold what a bar has, as Python's reader has it: both read the same out of one file.</summary>
internal static class BarColumns
{
    /// <summary>The day of a bar.</summary>
    public const string Date = "date";

    private static readonly string[] Required = ["open", "high", "low", "close", "volume"];
    private static readonly string[] Optional = ["adj_close", "split_ratio", "cash_dividend"];

    /// <summary>Usual other names, read where no other column holds the same.</summary>
    private static readonly (string Name, string Field)[] OtherNames =
    [
        .. new[] { "datetime", "timestamp", "time", "trade_date", "day" }.Select(name => (name, Date)),
        .. new[] { "vol", "vol." }.Select(name => (name, "volume")),
        .. new[] { "adjclose", "adj._close", "adj_close*", "adj_close**", "adjusted_close" }.Select(name => (name, "adj_close")),
    ];

    /// <summary>Programs whose columns have usual names, but hold something else: their files are left to Python's reader.</summary>
    private static readonly (string Program, string[] Marks)[] Strangers =
    [
        ("Alpaca", ["timestamp", "trade_count", "vwap"]),
        ("CryptoDataDownload", ["unix", Date, CsvTable.Symbol]),
        ("Quandl", ["ex-dividend", "split_ratio", "adj_close"]),
    ];

    /// <summary>Finds the date and the numbers of bars.</summary>
    /// <returns>Columns by field, the date among them.</returns>
    /// <exception cref="QuantraException">One is missing, two may hold the same, or the table is a program's that means something else.</exception>
    public static IReadOnlyDictionary<string, CsvColumn> Of(CsvTable table)
    {
        var stranger = Array.Find(Strangers, one => one.Marks.All(table.Has));
        if (stranger.Program is not null)
            throw table.Refusal($"{stranger.Program}'s columns {string.Join(", ", stranger.Marks)} are not read here");
        var found = new Dictionary<string, CsvColumn>();
        foreach (var field in Required.Prepend(Date).Concat(Optional))
        {
            if (ColumnOf(table, field) is { } column)
                found.Add(field, column);
        }

        table.Require(Required.Prepend(Date).Where(field => !found.ContainsKey(field)));
        return found;
    }

    private static CsvColumn? ColumnOf(CsvTable table, string field)
    {
        if (table.Has(field))
            return table.Column(field);
        var others = OtherNames.Where(other => other.Field == field && table.Has(other.Name)).Select(other => other.Name).ToArray();
        return others.Length switch
        {
            0 => null,
            1 => table.Column(others[0]),
            _ => throw table.Refusal(
                $"columns {string.Join(", ", others)} may each hold the {field}; rename the right one to {field}"),
        };
    }
}
