namespace Quantra.Client;

/// <summary>Finds the columns of a table that hold the fields of bars, by the same rules as the Python reader.</summary>
internal static class BarColumns
{
    public const string Date = "date";

    private static readonly string[] Required = ["open", "high", "low", "close", "volume"];
    private static readonly string[] Optional = ["adj_close", "split_ratio", "cash_dividend"];

    /// <summary>Common alternative names, used if no column has the field's own name.</summary>
    private static readonly (string Name, string Field)[] OtherNames =
    [
        .. new[] { "datetime", "timestamp", "time", "trade_date", "day" }.Select(name => (name, Date)),
        .. new[] { "vol", "vol." }.Select(name => (name, "volume")),
        .. new[] { "adjclose", "adj._close", "adj_close*", "adj_close**", "adjusted_close" }.Select(name => (name, "adj_close")),
    ];

    /// <summary>Programs whose columns have common names but another meaning. Only the Python reader supports their files.</summary>
    private static readonly (string Program, string[] Columns)[] UnsupportedPrograms =
    [
        ("Alpaca", ["timestamp", "trade_count", "vwap"]),
        ("CryptoDataDownload", ["unix", Date, CsvTable.Symbol]),
        ("Quandl", ["ex-dividend", "split_ratio", "adj_close"]),
    ];

    /// <summary>Finds the columns of a date and of the fields of bars.</summary>
    /// <exception cref="QuantraException">A column is missing or ambiguous, or the file is from an unsupported program.</exception>
    public static IReadOnlyDictionary<string, CsvColumn> Of(CsvTable table)
    {
        var program = Array.Find(UnsupportedPrograms, one => one.Columns.All(table.Has));
        if (program.Program is not null)
            throw table.Refusal($"columns {string.Join(", ", program.Columns)} of {program.Program} are not supported here");
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
