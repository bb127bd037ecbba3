namespace Quantra.Client.Managed;

/// <summary>Selects rows of a network's inputs.</summary>
internal static class InputRows
{
    /// <param name="inputs">Inputs of S rows.</param>
    /// <param name="usable">[S] which rows to keep.</param>
    /// <param name="knownWidth">Length of the known features of one row, which all rows may share.</param>
    public static NetworkInputs Select(NetworkInputs inputs, bool[] usable, int knownWidth) =>
        Take(inputs, [.. Enumerable.Range(0, usable.Length).Where(row => usable[row])], knownWidth, inputs.Known.Length == knownWidth);

    /// <summary>The rows that the forecast of a row depends on, itself first: its neighbours in a graph; all cells of a missing one are unknown.</summary>
    /// <param name="inputs">Inputs of S rows.</param>
    /// <param name="row">The row.</param>
    /// <param name="neighbours">Neighbours of each node; null for a network without a graph.</param>
    /// <param name="knownWidth">As for <see cref="Select"/>.</param>
    public static NetworkInputs WindowOf(NetworkInputs inputs, int row, int[][]? neighbours, int knownWidth)
    {
        if (neighbours is null)
            return Take(inputs, [row], knownWidth, isKnownShared: false);
        var node = inputs.Nodes[row];
        int[] others = [.. neighbours[Math.Max(node, 0)].Select(neighbour => node < 0 || neighbour < 0 ? -1 : Array.IndexOf(inputs.Nodes, neighbour))];
        int[] members = [row, .. others];
        var window = Take(inputs, Array.ConvertAll(members, one => Math.Max(one, 0)), knownWidth, isKnownShared: false);
        var cells = window.Mask.Length / members.Length;
        for (var member = 0; member < members.Length; member++)
        {
            if (members[member] < 0)
                window.Mask.AsSpan(member * cells, cells).Clear();
        }

        return window.AsPanel(Array.ConvertAll(members, one => one < 0 ? -1 : inputs.Nodes[one]));
    }

    private static NetworkInputs Take(NetworkInputs inputs, int[] rows, int knownWidth, bool isKnownShared)
    {
        return new NetworkInputs
        {
            Rows = rows.Length,
            Observed = TakeRows(inputs.Observed, inputs.Rows),
            Known = isKnownShared ? inputs.Known : TakeRows(inputs.Known, inputs.Known.Length / Math.Max(knownWidth, 1)),
            Static = TakeRows(inputs.Static, inputs.Rows),
            Mask = TakeRows(inputs.Mask, inputs.Rows),
            Location = TakeRows(inputs.Location, inputs.Rows),
            Scale = TakeRows(inputs.Scale, inputs.Rows),
        };

        T[] TakeRows<T>(T[] values, int count)
        {
            var width = values.Length / Math.Max(count, 1);
            var taken = new T[rows.Length * width];
            for (var index = 0; index < rows.Length; index++)
                values.AsSpan(count > 1 ? rows[index] * width : 0, width).CopyTo(taken.AsSpan(index * width));
            return taken;
        }
    }
}
