namespace Quantra.Client;

/// <summary>Rows of bars as they come, by column and in blocks, so that nothing is copied while they grow.</summary>
/// <param name="columns">How many numbers a row has.</param>
internal sealed class BarRows(int columns)
{
    private const int FirstBlock = 1 << 10;
    private const int LargestBlock = 1 << 16;

    private readonly List<Block> _blocks = [];

    /// <summary>How many there are.</summary>
    public int Count { get; private set; }

    /// <summary>Adds a row.</summary>
    /// <param name="symbol">Its number.</param>
    /// <param name="day">Its day.</param>
    /// <returns>The columns, and the place of the row's numbers in each.</returns>
    public (double[][] Columns, int Place) Add(int symbol, DateOnly day)
    {
        if (_blocks.Count == 0 || _blocks[^1].Count == _blocks[^1].Days.Length)
            _blocks.Add(new Block(columns, _blocks.Count == 0 ? FirstBlock : Math.Min(LargestBlock, 2 * _blocks[^1].Days.Length)));
        var block = _blocks[^1];
        block.Symbols[block.Count] = symbol;
        block.Days[block.Count] = day.DayNumber;
        Count++;
        return (block.Columns, block.Count++);
    }

    /// <summary>Every day that a row has, in order.</summary>
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

    /// <summary>Takes a column out of the rows, as [S, T] with NaN where a symbol has no row.</summary>
    /// <param name="column">Its place.</param>
    /// <param name="symbols">S.</param>
    /// <param name="sessions">[T] every day, in order.</param>
    public double[] Take(int column, int symbols, DateOnly[] sessions)
    {
        var values = new double[(long)symbols * sessions.Length];
        Array.Fill(values, double.NaN);
        var places = Places(sessions);
        foreach (var block in _blocks)
        {
            for (var row = 0; row < block.Count; row++)
                values[(block.Symbols[row] * sessions.Length) + places[block.Days[row] - sessions[0].DayNumber]] = block.Columns[column][row];
            block.Columns[column] = []; // free for what follows
        }

        return values;
    }

    /// <summary>The place of each day among the sessions, from the first one on.</summary>
    private static int[] Places(DateOnly[] sessions)
    {
        var places = new int[sessions[^1].DayNumber - sessions[0].DayNumber + 1];
        for (var place = 0; place < sessions.Length; place++)
            places[sessions[place].DayNumber - sessions[0].DayNumber] = place;
        return places;
    }

    private sealed class Block(int columns, int rows)
    {
        public int[] Symbols { get; } = new int[rows];

        public int[] Days { get; } = new int[rows];

        public double[][] Columns { get; } = [.. Enumerable.Range(0, columns).Select(_ => new double[rows])];

        public int Count { get; set; }
    }
}
