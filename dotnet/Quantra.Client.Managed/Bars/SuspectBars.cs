namespace Quantra.Client.Managed;

/// <summary>The likely cause of suspect bars.</summary>
internal enum SuspectKind
{
    /// <summary>One bar is off, and the next is back at the old level; or the last bar is off.</summary>
    Bar,

    /// <summary>The level changes by a power of ten.</summary>
    Unit,

    /// <summary>The level changes by the factor of a split that the adjustment lacks.</summary>
    Split,

    /// <summary>The level changes by another factor.</summary>
    Level,

    /// <summary>The level changes during a long gap.</summary>
    Company,

    /// <summary>The volumes of some days are off.</summary>
    Volume,
}

/// <summary>One bar, or the edges of a stretch of bars, that contradict the history of their symbol.</summary>
internal sealed class SuspectBars
{
    private const double FactorTolerance = 0.1;
    private const int MostNamed = 3;
    private static readonly double ImpossibleLevel = Math.Log(100);

    public required SuspectKind Kind { get; init; }

    public required string Symbol { get; init; }

    /// <summary>yyyymmdd: the bar, the first session at each new level, or all days whose volume is off.</summary>
    public required int[] Sessions { get; init; }

    /// <summary>What is off: open, high, low, close or volume.</summary>
    public required string Field { get; init; }

    public required double Value { get; init; }

    /// <summary>Lowest value that the history allows there.</summary>
    public required double Low { get; init; }

    /// <summary>Highest value that it allows.</summary>
    public required double High { get; init; }

    /// <summary>The value divided by what was expected.</summary>
    public required double Factor { get; init; }

    /// <summary>Weekdays without a bar before it.</summary>
    public int Gap { get; init; }

    public bool IsLast { get; init; }

    /// <summary>Whether only the adjusted price is off.</summary>
    public bool IsAdjustment { get; init; }

    /// <summary>Whether a forecast from these bars is refused; a single bar in the middle is left out instead.</summary>
    public bool Refuses => Kind switch
    {
        SuspectKind.Level => Math.Abs(Math.Log(Factor)) > ImpossibleLevel,
        SuspectKind.Bar => IsLast,
        _ => Kind is SuspectKind.Unit or SuspectKind.Split,
    };

    /// <summary>The warning about bars that a forecast does not refuse.</summary>
    public string Warning => Kind is SuspectKind.Bar or SuspectKind.Volume ? $"{this} It is left out." : ToString();

    /// <summary>The powers of ten that a wrong unit may have.</summary>
    public static IEnumerable<double> Powers => [1e1, 1e2, 1e3, 1e4, 1e5, 1e6];

    /// <summary>The factors of common splits.</summary>
    public static IEnumerable<double> Splits => PriceJumps.CommonSplits.Select(split => (double)split.New / split.Old);

    /// <summary>Whether a log distance is near that of one of these factors.</summary>
    public static bool IsNear(double size, IEnumerable<double> factors) => factors.Any(factor => Math.Abs(Math.Abs(size) - Math.Log(factor)) < FactorTolerance);

    /// <summary>A factor above 1, rounded to a power of ten or to a split's factor if it is near one.</summary>
    public static string DescribeFactor(double factor)
    {
        var size = Math.Abs(Math.Log(factor));
        foreach (var exact in Powers.Concat(Splits))
        {
            if (Math.Abs(size - Math.Log(exact)) < FactorTolerance)
                return NumberText.General(exact);
        }

        return RoundFactor(factor);
    }

    /// <summary>The error for a symbol that is refused because of these bars.</summary>
    public static QuantraError Error(IReadOnlyList<SuspectBars> suspects)
    {
        var first = suspects[0];
        var shown = string.Concat(suspects.Skip(1).Take(MostNamed - 1).Select(other => $" {other}"));
        var more = suspects.Count > MostNamed ? $" {MessageFormat.Count(suspects.Count - MostNamed, "more such change")}." : "";
        return PredictionError.BarSuspect(
            $"{first}{shown}{more} Correct the bars, or set accept_suspect_bars (--accept-suspect-bars)",
            ("symbol", first.Symbol),
            ("date", Day.Show(first.Sessions[0])),
            ("field", first.Field),
            ("value", NumberText.Exact(first.Value)),
            ("low", NumberText.Exact(first.Low)),
            ("high", NumberText.Exact(first.High)));
    }

    /// <summary>The finding in one sentence, as a question where only a person can answer it.</summary>
    public override string ToString()
    {
        var factor = DescribeFactor(Factor);
        if (Kind == SuspectKind.Volume)
        {
            var others = Sessions.Length > 1 ? $", and {MessageFormat.Count(Sessions.Length - 1, "more day")}" : "";
            return $"{Symbol} {Day.Show(Sessions[0])}{others}: volume is {NumberText.General(Value, 10)}, but its other bars suggest "
                + $"{NumberText.General(Low, 4)} to {NumberText.General(High, 4)}; a factor of {factor}: a wrong unit?";
        }

        var days = string.Join(" and ", Sessions.Select(Day.Show));
        if (IsAdjustment)
        {
            return $"{Symbol}: the adjusted close changes by a factor of {factor} on {days}, the close does not: a "
                + "wrong adjusted close, split or dividend?";
        }

        if (Kind == SuspectKind.Bar)
        {
            return $"{Symbol} {days}: {Field} is {NumberText.General(Value)}, but its other bars suggest {NumberText.General(Low, 4)} to "
                + $"{NumberText.General(High, 4)}; a factor of {factor}: a wrong unit or a bad tick?";
        }

        if (Kind == SuspectKind.Company)
            return FormattableString.Invariant($"{Symbol}: a gap of {Gap} weekdays before {days} and a change of the level by a factor of {factor}: another company?");
        var question = Kind switch
        {
            SuspectKind.Unit => "currency unit?",
            SuspectKind.Split => $"an unadjusted split of {factor}?",
            _ => Refuses ? "wrong bars?" : "a real move, or a wrong bar?",
        };
        return $"{Symbol}: prices change by a factor of {(Kind == SuspectKind.Level ? RoundFactor(Factor) : factor)} on {days}: {question}";
    }

    private static string RoundFactor(double factor) => NumberText.General(Math.Max(factor, 1 / factor), 3);
}
