using System.Globalization;
using System.Text;
using System.Text.Unicode;

namespace Quantra.Client;

/// <summary>The current row of a table.</summary>
internal readonly struct CsvRow(CsvTable table, CsvReader reader)
{
    /// <summary>Number of the row, from 1 after the header.</summary>
    public int RowNumber => reader.Number;

    /// <summary>Returns the raw cell.</summary>
    public ReadOnlySpan<byte> Bytes(CsvColumn column) => reader.Cell(column.Index);

    /// <summary>Returns a cell without surrounding white space.</summary>
    public string Text(CsvColumn column)
    {
        var cell = reader.Cell(column.Index);
        return Utf8.IsValid(cell)
            ? Encoding.UTF8.GetString(cell).Trim()
            : throw Refusal(column, $"'{Encoding.UTF8.GetString(cell)}' is not UTF-8; save the file as CSV in UTF-8");
    }

    /// <summary>Returns the symbol, which must not be empty.</summary>
    public string Symbol()
    {
        var symbol = Text(table.SymbolColumn!.Value);
        return symbol.Length > 0 ? symbol : throw table.Refusal($"row {RowNumber} after the header: the symbol is empty");
    }

    /// <summary>Returns a day, written as 2013-12-31 or 20131231. A time of day after it is ignored.</summary>
    public DateOnly Day(CsvColumn column)
    {
        if (CsvDate.TryRead(reader.Cell(column.Index).Trim((byte)' '), out var day))
            return day;
        var text = Text(column);
        return CsvDate.TryRead(Encoding.UTF8.GetBytes(text), out day)
            ? day
            : throw Refusal(column, $"'{text}' is not a date; write 2013-12-31 or 20131231");
    }

    /// <summary>Returns a number; NaN for an empty cell.</summary>
    public double Number(CsvColumn column)
    {
        var cell = reader.Cell(column.Index);
        if (cell.IsEmpty)
            return double.NaN;
        if (CsvNumber.TryRead(cell, out var value))
            return value;
        var text = Text(column);
        if (text.Length == 0)
            return double.NaN;
        return CsvNumber.TryRead(text, out value) ? value : throw Refusal(column, $"'{text}' is not a number");
    }

    /// <summary>Creates the exception for an invalid cell.</summary>
    public QuantraException Refusal(CsvColumn column, string problem) =>
        table.Refusal(string.Create(CultureInfo.InvariantCulture, $"row {RowNumber} after the header, column {column.Name}: {problem}"));
}
