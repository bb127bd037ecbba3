namespace Quantra.Client.Wire;

/// <summary>Symbols of a panel that follow each other, and perhaps one more.</summary>
/// <param name="First">The first of them.</param>
/// <param name="End">Behind the last one.</param>
/// <param name="Beside">One more, which comes last.</param>
internal readonly record struct Rows(int First, int End, int? Beside = null)
{
    /// <summary>How many there are without the one more.</summary>
    public int Count => End - First;

    /// <summary>Their rows of a column, not copied where they follow each other.</summary>
    /// <param name="column">Row-major.</param>
    /// <param name="width">Values of a row.</param>
    public ReadOnlyMemory<double> Of(ReadOnlyMemory<double> column, int width)
    {
        if (column.IsEmpty)
            return column;
        var part = column[(First * width)..(End * width)];
        return Beside is { } row ? (double[])[.. part.Span, .. column.Slice(row * width, width).Span] : part;
    }

    /// <summary>Their items of a list.</summary>
    public IReadOnlyList<string> Of(IReadOnlyList<string> all)
    {
        var part = new List<string>(Count + 1);
        for (var row = First; row < End; row++)
            part.Add(all[row]);
        if (Beside is { } more)
            part.Add(all[more]);
        return part.AsReadOnly();
    }
}
