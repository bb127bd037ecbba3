using System.Globalization;

namespace Quantra.Client;

/// <summary>One row of a table.</summary>
/// <param name="table">The table that it belongs to.</param>
/// <param name="number">Counted from 1 after the header.</param>
/// <param name="cells">One per column.</param>
internal readonly struct CsvRow(CsvTable table, int number, List<string> cells)
{
    /// <summary>Its number, counted from 1 after the header.</summary>
    public int Place => number;

    /// <summary>A cell, without white space around it.</summary>
    public string Text(string column) => cells[table.PlaceOf(column)].Trim();

    /// <summary>The symbol, which must not be empty.</summary>
    public string Symbol()
    {
        var symbol = Text(CsvTable.Symbol);
        return symbol.Length > 0 ? symbol : throw table.Refusal($"row {number} after the header: the symbol is empty");
    }

    /// <summary>A day: 2013-12-31 or 20131231; a time of day after it is dropped.</summary>
    public DateOnly Day(string column)
    {
        var text = Text(column);
        var day = text.Length > 10 && text[10] is 'T' or ' ' ? text[..10] : text;
        return DateOnly.TryParseExact(day, ["yyyy-MM-dd", "yyyyMMdd"], CultureInfo.InvariantCulture, DateTimeStyles.None, out var date)
            ? date
            : throw Refusal(column, $"'{text}' is not a date; write 2013-12-31 or 20131231");
    }

    /// <summary>A number; NaN for an empty cell.</summary>
    public double Number(string column)
    {
        var text = Text(column);
        if (text.Length == 0)
            return double.NaN;
        return double.TryParse(text, NumberStyles.Float, CultureInfo.InvariantCulture, out var value)
            ? value
            : throw Refusal(column, $"'{text}' is not a number");
    }

    /// <summary>The error for a problem with a cell.</summary>
    public QuantraException Refusal(string column, string problem) =>
        table.Refusal($"row {number} after the header, column {column}: {problem}");
}
