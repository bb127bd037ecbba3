namespace Quantra.Client.Wire;

/// <summary>A range of symbols of a panel, and optionally one more.</summary>
/// <param name="First">First row.</param>
/// <param name="End">Row after the last one.</param>
/// <param name="Extra">An additional row, placed last.</param>
internal readonly record struct RowRange(int First, int End, int? Extra = null)
{
    /// <summary>Number of rows without the additional one.</summary>
    public int Count => End - First;

    /// <summary>Returns the rows of a row-major column, without a copy if there is no additional row.</summary>
    public ReadOnlyMemory<double> Of(ReadOnlyMemory<double> column, int width)
    {
        if (column.IsEmpty)
            return column;
        var part = column[(First * width)..(End * width)];
        return Extra is { } row ? (double[])[.. part.Span, .. column.Slice(row * width, width).Span] : part;
    }

    public IReadOnlyList<string> Of(IReadOnlyList<string> all)
    {
        var part = new List<string>(Count + 1);
        for (var row = First; row < End; row++)
            part.Add(all[row]);
        if (Extra is { } extra)
            part.Add(all[extra]);
        return part.AsReadOnly();
    }
}
