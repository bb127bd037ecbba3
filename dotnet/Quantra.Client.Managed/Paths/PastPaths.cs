namespace Quantra.Client.Managed;

/// <summary>Past paths of S symbols over D days, one for each of T start days.</summary>
internal sealed class PastPaths
{
    /// <summary>Past paths that are needed, one per day.</summary>
    public const int LeastDays = 250;

    /// <summary>Weight of the past in the volatility, as in RiskMetrics.</summary>
    private const double Decay = 0.94;

    /// <summary>Days over which the inverse of the weights stays a moderate number.</summary>
    private const int Chunk = 256;

    /// <summary>Days until the volatility no longer depends on its start.</summary>
    private const int WarmUp = 40;

    /// <summary>Share of a typical move below which a volatility is that of a symbol without trading, which cannot scale returns.</summary>
    private const double LeastVolatility = 0.1;

    private readonly int _days;
    private readonly int _starts;
    private readonly double[] _scaled;
    private readonly bool[] _isUsable;

    private PastPaths(int symbols, int days, int starts) =>
        (_days, _starts, _scaled, _isUsable, Volatility) = (days, starts, new double[symbols * starts * days], new bool[symbols * starts], new double[symbols]);

    /// <summary>[S] volatility of the daily log return on the last day.</summary>
    public double[] Volatility { get; }

    /// <summary>Reads the past paths of bars.</summary>
    public static PastPaths Of(RawBars bars, int days)
    {
        var (close, symbols) = (ReadCloses(bars), bars.Symbols.Count);
        var past = new PastPaths(symbols, days, Math.Max(0, bars.Count - 1 - days));
        for (var row = 0; row < symbols; row++)
            past.Fill(row, close.AsSpan(row * bars.Count, bars.Count));
        return past;
    }

    /// <summary>Log returns [D] from a start day to each of the next days, in units of the start day's volatility.</summary>
    public ReadOnlySpan<double> Scaled(int symbol, int start) => _scaled.AsSpan(((symbol * _starts) + start) * _days, _days);

    /// <summary>The start days on which all bars of the paths of these symbols are present.</summary>
    public int[] FindCommonStarts(IReadOnlyList<int> symbols) => [.. Enumerable.Range(0, _starts).Where(start => symbols.All(row => _isUsable[(row * _starts) + start]))];

    /// <summary>Chooses the symbols that share enough days, those with the longest past first.</summary>
    /// <returns>Their rows, and the errors of the others.</returns>
    /// <exception cref="QuantraException">TOO_FEW_BARS: no symbol has enough.</exception>
    public (int[] Rows, Dictionary<string, QuantraError> Refusals) ChooseSymbols(IReadOnlyList<string> symbols)
    {
        var refusals = new Dictionary<string, QuantraError>(StringComparer.Ordinal);
        var chosen = new List<int>();
        int[] own = [.. Enumerable.Range(0, symbols.Count).Select(row => FindCommonStarts([row]).Length)];
        foreach (var row in Enumerable.Range(0, symbols.Count).OrderByDescending(row => own[row]))
        {
            var shared = FindCommonStarts([.. chosen, row]).Length;
            if (shared >= LeastDays)
            {
                chosen.Add(row);
                continue;
            }

            var problem = own[row] < LeastDays
                ? $"{symbols[row]}: has {MessageFormat.Count(own[row], "past path")}, need {LeastDays}; give a longer history"
                : $"{symbols[row]}: shares {MessageFormat.Count(shared, "past day")} with the others, need {LeastDays}; simulate it separately";
            refusals.Add(symbols[row], PredictionError.Of(
                QuantraStatus.InvalidArgument,
                QuantraReason.TooFewBars,
                problem,
                ("symbol", symbols[row]),
                ("have", FormattableString.Invariant($"{own[row]}"))));
        }

        return chosen.Count > 0 ? ([.. chosen.Order()], refusals) : throw refusals.Values.First().ToException();
    }

    /// <summary>Adjusted closes [S, T]; NaN without a bar, and where bars contradict the history of their symbol.</summary>
    private static double[] ReadCloses(RawBars bars)
    {
        var close = BarAdjustment.Adjust(bars).Bars.Close;
        foreach (var suspect in SuspectFinder.Find(bars).Where(one => one.Kind != SuspectKind.Volume))
        {
            var row = Enumerable.Range(0, bars.Symbols.Count).First(index => bars.Symbols[index] == suspect.Symbol);
            foreach (var session in suspect.Sessions)
                close[(row * bars.Count) + Array.BinarySearch(bars.Sessions, session)] = double.NaN;
        }

        return close;
    }

    private void Fill(int row, ReadOnlySpan<double> close)
    {
        var moves = new double[close.Length - 1];
        for (var day = 0; day < moves.Length; day++)
            moves[day] = Math.Log(close[day + 1]) - Math.Log(close[day]);
        var volatility = Array.ConvertAll(Smooth(moves), Math.Sqrt);
        Volatility[row] = volatility.Length > 0 ? volatility[^1] : double.NaN;
        var (least, seen) = (LeastVolatility * ComputeTypicalMove(moves), 0);
        for (var start = 0; start < _starts; start++)
        {
            seen += double.IsFinite(moves[start]) ? 1 : 0;
            var (sum, scale) = (0.0, volatility[start] >= least ? volatility[start] : double.NaN);
            for (var day = 0; day < _days; day++)
            {
                sum += moves[start + 1 + day] / scale;
                _scaled[(((row * _starts) + start) * _days) + day] = sum;
            }

            _isUsable[(row * _starts) + start] = double.IsFinite(sum) && seen >= WarmUp && Volatility[row] > 0;
        }
    }

    /// <summary>The median size of the moves other than 0; infinite without any.</summary>
    private static double ComputeTypicalMove(double[] moves)
    {
        double[] sizes = [.. moves.Select(Math.Abs).Where(size => size > 0).Order()];
        if (sizes.Length == 0)
            return double.PositiveInfinity;
        return sizes.Length % 2 == 1 ? sizes[sizes.Length / 2] : (sizes[(sizes.Length / 2) - 1] + sizes[sizes.Length / 2]) / 2;
    }

    /// <summary>Exponentially weighted means of squared moves up to each day; days without a move are skipped.</summary>
    private static double[] Smooth(double[] moves)
    {
        var smooth = new double[moves.Length];
        var first = Array.FindIndex(moves, double.IsFinite);
        if (first < 0)
        {
            Array.Fill(smooth, double.NaN);
            return smooth;
        }

        var level = moves[first] * moves[first];
        for (var begin = 0; begin < moves.Length; begin += Chunk)
        {
            var (known, sum) = (0, 0.0);
            for (var day = begin; day < Math.Min(begin + Chunk, moves.Length); day++)
            {
                var isKnown = double.IsFinite(moves[day]);
                known += isKnown ? 1 : 0;
                var weight = Math.Pow(Decay, known);
                sum += isKnown ? (1 - Decay) * (moves[day] * moves[day]) / weight : 0;
                smooth[day] = day < first ? double.NaN : weight * (level + sum);
                if (day == Math.Min(begin + Chunk, moves.Length) - 1)
                    level = weight * (level + sum);
            }
        }

        return smooth;
    }
}
