using System.Runtime.CompilerServices;

namespace Quantra.Client.Managed;

/// <summary>Adjusts prices and volumes for splits and dividends, relative to each symbol's last bar.</summary>
/// <remarks>The order of operations is part of the artifact format: features depend on every bit.</remarks>
internal static class BarAdjustment
{
    /// <summary>Adjusts bars. A symbol that cannot be adjusted gets no bars.</summary>
    /// <returns>The bars, and the error of each row that cannot be adjusted; null if all can.</returns>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public static (AdjustedBars Bars, Dictionary<int, QuantraError>? Faults) Adjust(RawBars bars)
    {
        var adjusted = Compute(bars);
        Dictionary<int, QuantraError>? faults = null;
        for (var cell = 0; cell < bars.Close.Length; cell++)
        {
            var isSound = adjusted.Low[cell] > 0 && adjusted.High[cell] < double.PositiveInfinity && adjusted.Money[cell] != double.PositiveInfinity;
            if (!isSound && !double.IsNaN(bars.Close[cell]) && faults?.ContainsKey(cell / bars.Count) != true)
                (faults ??= []).Add(cell / bars.Count, Fault(bars, adjusted, cell));
        }

        if (faults is null)
            return (adjusted, null);
        foreach (var row in faults.Keys)
        {
            foreach (var column in (double[][])[adjusted.Open, adjusted.High, adjusted.Low, adjusted.Close, adjusted.Volume, adjusted.Money])
                column.AsSpan(row * bars.Count, bars.Count).Fill(double.NaN);
        }

        return (adjusted, faults);
    }

    /// <summary>The last close before each session, [S, T]; NaN before the first one.</summary>
    public static double[] CloseBefore(RawBars bars, double[] close)
    {
        var before = bars.Arrays.Take<double>(close.Length);
        for (var row = 0; row < bars.Symbols.Count; row++)
        {
            var last = double.NaN;
            for (var cell = row * bars.Count; cell < (row + 1) * bars.Count; cell++)
            {
                before[cell] = last;
                if (!double.IsNaN(close[cell]))
                    last = close[cell];
            }
        }

        return before;
    }

    /// <summary>The number of shares [S, T] that one share of each day becomes by the last day.</summary>
    public static double[] ComputeLaterShares(RawBars bars)
    {
        if (bars.SplitRatio is not { } ratios)
            return CreateOnes(bars);
        return MultiplyLater(bars, Array.ConvertAll(ratios, ratio => double.IsNaN(ratio) ? 1.0 : ratio));
    }

    /// <summary>The share of a price [S, T] that remains after the dividend; 1 without a dividend or an earlier bar.</summary>
    public static double[] ComputeKeptShares(RawBars bars, double[] later)
    {
        var kept = CreateOnes(bars);
        if (bars.CashDividend is not { } dividends)
            return kept;
        for (var row = 0; row < bars.Symbols.Count; row++)
        {
            var before = -1;
            for (var cell = row * bars.Count; cell < (row + 1) * bars.Count; cell++)
            {
                if (dividends[cell] > 0 && before >= 0)
                    kept[cell] = 1.0 - (dividends[cell] / (bars.Close[before] * (later[cell] / later[before])));
                if (!double.IsNaN(bars.Close[cell]))
                    before = cell;
            }
        }

        return kept;
    }

    private static AdjustedBars Compute(RawBars bars)
    {
        if (bars.AdjustedClose is { } adjusted)
        {
            var factor = Rebase(bars, Divide(bars, adjusted, bars.Close));
            return Scale(bars, factor, Divide(bars, bars.Volume, factor));
        }

        if (bars.SplitRatio is null && bars.CashDividend is null)
            return Scale(bars, null, bars.Arrays.Copy<double>(bars.Volume));
        var later = ComputeLaterShares(bars);
        var paid = MultiplyLater(bars, ComputeKeptShares(bars, later));
        return Scale(bars, Rebase(bars, Divide(bars, paid, later)), Multiply(bars, bars.Volume, Rebase(bars, later)));
    }

    private static AdjustedBars Scale(RawBars bars, double[]? factor, double[] volume)
    {
        return new AdjustedBars
        {
            Symbols = bars.Symbols.Count,
            Sessions = bars.Count,
            Open = Adjust(bars.Open),
            High = Adjust(bars.High),
            Low = Adjust(bars.Low),
            Close = Adjust(bars.Close),
            Volume = volume,
            Money = Multiply(bars, bars.Close, bars.Volume),
        };

        double[] Adjust(double[] price) => factor is null ? bars.Arrays.Copy<double>(price) : Multiply(bars, price, factor);
    }

    /// <summary>Divides each row by its value at the symbol's last bar; NaN without a bar.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static double[] Rebase(RawBars bars, double[] values)
    {
        var rebased = bars.Arrays.Take<double>(values.Length);
        for (var row = 0; row < bars.Symbols.Count; row++)
        {
            var (first, end) = (row * bars.Count, (row + 1) * bars.Count);
            var last = end - 1;
            while (last > first && double.IsNaN(bars.Close[last]))
                last--;
            for (var cell = first; cell < end; cell++)
                rebased[cell] = double.IsNaN(bars.Close[cell]) ? double.NaN : values[cell] / values[last];
        }

        return rebased;
    }

    /// <summary>The product of the values of all later days, multiplied from the last day backwards.</summary>
    private static double[] MultiplyLater(RawBars bars, double[] values)
    {
        var product = CreateOnes(bars);
        for (var row = 0; row < bars.Symbols.Count; row++)
        {
            var total = double.NaN;
            for (var cell = ((row + 1) * bars.Count) - 2; cell >= row * bars.Count; cell--)
            {
                total = double.IsNaN(total) ? values[cell + 1] : total * values[cell + 1];
                product[cell] = total;
            }
        }

        return product;
    }

    private static QuantraError Fault(RawBars bars, AdjustedBars adjusted, int cell)
    {
        var isPrice = adjusted.Money[cell] != double.PositiveInfinity;
        var (row, column) = Math.DivRem(cell, bars.Count);
        return PredictionError.BarsAt(
            bars.Symbols[row],
            bars.Sessions[column],
            isPrice ? "adjusted close" : "close times volume",
            isPrice ? adjusted.Close[cell] : adjusted.Money[cell],
            "it must be within the range of a double; check prices, volume, and later splits and dividends");
    }

    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static double[] Multiply(RawBars bars, double[] left, double[] right)
    {
        var result = bars.Arrays.Take<double>(left.Length);
        for (var index = 0; index < result.Length; index++)
            result[index] = left[index] * right[index];
        return result;
    }

    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    private static double[] Divide(RawBars bars, double[] left, double[] right)
    {
        var result = bars.Arrays.Take<double>(left.Length);
        for (var index = 0; index < result.Length; index++)
            result[index] = left[index] / right[index];
        return result;
    }

    private static double[] CreateOnes(RawBars bars)
    {
        var ones = bars.Arrays.Take<double>(bars.Close.Length);
        Array.Fill(ones, 1.0);
        return ones;
    }
}
