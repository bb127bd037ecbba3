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
            Rows = 1,
            Observed = new float[window.Observed.Length],
            Known = [.. Enumerable.Range(0, window.Known.Length).Select(k => baseline.Known[k % baseline.Known.Length])],
            Static = baseline.Static,
            Mask = window.Mask,
            Location = baseline.Location,
            Scale = baseline.Scale,
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

    /// <summary>Index of the first location among the cells.</summary>
    public int FirstLocation => _window.Observed.Length + _window.Known.Length + _window.Static.Length;

    /// <summary>The inputs at some positions, one row each; 0 and 1 give baseline and window bit by bit.</summary>
    public NetworkInputs At(ReadOnlySpan<double> positions) => new()
    {
        Rows = positions.Length,
        Observed = Between(_start.Observed, _window.Observed, positions),
        Known = Between(_start.Known, _window.Known, positions),
        Static = Between(_start.Static, _window.Static, positions),
        Mask = [.. Enumerable.Repeat(_window.Mask, positions.Length).SelectMany(mask => mask)],
        Location = Between(_start.Location, _window.Location, positions),
        Scale = Between(_start.Scale, _window.Scale, positions),
    };

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
