namespace Quantra.Client;

/// <summary>A growing buffer of bar rows, stored by column and in blocks so that growing copies nothing.</summary>
/// <param name="columns">Numbers per row.</param>
internal sealed class BarRowBuffer(int columns)
{
    private const int FirstBlock = 1 << 10;
    private const int LargestBlock = 1 << 16;

    private readonly List<Block> _blocks = [];

    public int Count { get; private set; }

    /// <summary>Adds a row.</summary>
    /// <returns>The columns, and the index of the row's numbers in each.</returns>
    public (double[][] Columns, int Index) Add(int symbol, DateOnly day)
    {
        if (_blocks.Count == 0 || _blocks[^1].Count == _blocks[^1].Days.Length)
            _blocks.Add(new Block(columns, _blocks.Count == 0 ? FirstBlock : Math.Min(LargestBlock, 2 * _blocks[^1].Days.Length)));
        var block = _blocks[^1];
        block.Symbols[block.Count] = symbol;
        block.Days[block.Count] = day.DayNumber;
        Count++;
        return (block.Columns, block.Count++);
    }

    /// <summary>Returns every day that has a row, in order.</summary>
    public DateOnly[] Days()
    {
        var days = new HashSet<int>();
        foreach (var block in _blocks)
        {
            foreach (var day in block.Days.AsSpan(0, block.Count))
                days.Add(day);
        }

        return [.. days.Order().Select(DateOnly.FromDayNumber)];
    }

    /// <summary>Moves a column out of the buffer as [S, T], with NaN where a symbol has no row.</summary>
    public double[] Take(int column, int symbols, DateOnly[] sessions)
    {
        var values = new double[(long)symbols * sessions.Length];
        Array.Fill(values, double.NaN);
        var indexByDay = IndexByDay(sessions);
        foreach (var block in _blocks)
        {
            for (var row = 0; row < block.Count; row++)
                values[(block.Symbols[row] * sessions.Length) + indexByDay[block.Days[row] - sessions[0].DayNumber]] = block.Columns[column][row];
            block.Columns[column] = []; // frees memory for the next column
        }

        return values;
    }

    /// <summary>Maps days to their index among the sessions, as an array from the first day on.</summary>
    private static int[] IndexByDay(DateOnly[] sessions)
    {
        var indexByDay = new int[sessions[^1].DayNumber - sessions[0].DayNumber + 1];
        for (var index = 0; index < sessions.Length; index++)
            indexByDay[sessions[index].DayNumber - sessions[0].DayNumber] = index;
        return indexByDay;
    }

    private sealed class Block(int columns, int rows)
    {
        public int[] Symbols { get; } = new int[rows];

        public int[] Days { get; } = new int[rows];

        public double[][] Columns { get; } = [.. Enumerable.Range(0, columns).Select(_ => new double[rows])];

        public int Count { get; set; }
    }
}
