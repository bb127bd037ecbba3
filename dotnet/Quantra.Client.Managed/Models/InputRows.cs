namespace Quantra.Client.Managed;

/// <summary>Selects rows of a network's inputs.</summary>
internal static class InputRows
{
    /// <param name="inputs">Inputs of S rows.</param>
    /// <param name="usable">[S] which rows to keep.</param>
    /// <param name="knownWidth">Length of the known features of one row, which all rows may share.</param>
    public static NetworkInputs Select(NetworkInputs inputs, bool[] usable, int knownWidth)
    {
        int[] rows = [.. Enumerable.Range(0, usable.Length).Where(row => usable[row])];
        return new NetworkInputs
        {
            Rows = rows.Length,
            Observed = Take(inputs.Observed),
            Known = inputs.Known.Length == knownWidth ? inputs.Known : Take(inputs.Known),
            Static = Take(inputs.Static),
            Mask = Take(inputs.Mask),
            Location = Take(inputs.Location),
            Scale = Take(inputs.Scale),
        };

        T[] Take<T>(T[] values)
        {
            var width = values.Length / usable.Length;
            var taken = new T[rows.Length * width];
            for (var index = 0; index < rows.Length; index++)
                values.AsSpan(rows[index] * width, width).CopyTo(taken.AsSpan(index * width));
            return taken;
        }
    }
}
