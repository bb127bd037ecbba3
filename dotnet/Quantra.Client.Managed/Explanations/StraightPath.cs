using System.Numerics;

namespace Quantra.Client.Managed;

/// <summary>The straight path from the baseline (0) to one window (1), along which all inputs of a forecast move.</summary>
/// <remarks>The cells of a path are observed, known and static inputs, locations, scales, then conformal offsets.</remarks>
internal sealed class StraightPath
{
    private readonly NetworkInputs _window;
    private readonly NetworkInputs _start;

    public StraightPath(NetworkInputs window, Baseline baseline, OutputMap output)
    {
        _window = window;
        _start = new NetworkInputs
        {
            Rows = window.Rows,
            Observed = new float[window.Observed.Length],
            Known = Repeat(baseline.Known, window.Known.Length),
            Static = Repeat(baseline.Static, window.Static.Length),
            Mask = window.Mask,
            Location = Repeat(baseline.Location, window.Location.Length),
            Scale = Repeat(baseline.Scale, window.Scale.Length),
        };
        Distance =
        [
            .. Differences(window.Observed, _start.Observed),
            .. Differences(window.Known, _start.Known),
            .. Differences(window.Static, _start.Static),
            .. Differences(window.Location, _start.Location),
            .. Differences(window.Scale, _start.Scale),
            .. output.Offsets.SelectMany(row => row),
        ];
    }

    /// <summary>Distance of each cell from the baseline.</summary>
    public double[] Distance { get; }

    /// <summary>Rows of the window: the explained stock, then those that its forecast depends on.</summary>
    public int Members => _window.Rows;

    /// <summary>Index of the first location among the cells.</summary>
    public int FirstLocation => _window.Observed.Length + _window.Known.Length + _window.Static.Length;

    /// <summary>The inputs at some positions, one row or panel each; 0 and 1 give baseline and window bit by bit.</summary>
    public NetworkInputs At(ReadOnlySpan<double> positions) => new()
    {
        Rows = positions.Length * Members,
        Panels = positions.Length,
        Nodes = Repeat(_window.Nodes, positions.Length * _window.Nodes.Length),
        Observed = Between(_start.Observed, _window.Observed, positions),
        Known = Between(_start.Known, _window.Known, positions),
        Static = Between(_start.Static, _window.Static, positions),
        Mask = Repeat(_window.Mask, positions.Length * _window.Mask.Length),
        Location = Between(_start.Location, _window.Location, positions),
        Scale = Between(_start.Scale, _window.Scale, positions),
    };

    private static T[] Repeat<T>(T[] values, int length) => [.. Enumerable.Range(0, length).Select(k => values[k % values.Length])];

    private static IEnumerable<double> Differences<T>(T[] end, T[] start)
        where T : INumber<T> => end.Zip(start, (to, from) => double.CreateChecked(to) - double.CreateChecked(from));

    private static T[] Between<T>(T[] start, T[] end, ReadOnlySpan<double> positions)
        where T : struct, INumber<T>
    {
        var values = new T[positions.Length * start.Length];
        for (var row = 0; row < positions.Length; row++)
        {
            var share = T.CreateTruncating(positions[row]);
            for (var k = 0; k < start.Length; k++)
            {
                var distance = end[k] - start[k];
                values[(row * start.Length) + k] = positions[row] < 0.5 ? start[k] + (share * distance) : end[k] - ((T.One - share) * distance);
            }
        }

        return values;
    }
}
