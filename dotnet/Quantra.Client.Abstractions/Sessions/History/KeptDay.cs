namespace Quantra.Client;

/// <summary>The bars and covariates of one day of a session, as far as they have come. It never changes.</summary>
internal sealed class KeptDay
{
    /// <summary>The day.</summary>
    public required DateOnly Session { get; init; }

    /// <summary>[C, S] numbers; NaN where none has come.</summary>
    public required double[] Values { get; init; }

    /// <summary>[S] whose bars have come, or are known not to be; null = all.</summary>
    public bool[]? HasCome { get; init; }

    /// <summary>What was sent of the days after it, in order: the covariates that are known ahead, [K, S].</summary>
    public IReadOnlyList<(DateOnly Session, double[] Values)> Ahead { get; init; } = [];

    /// <summary>Whether the day was complete or flushed once: from then on each of its bars is answered.</summary>
    public required bool IsAnswered { get; init; }

    /// <summary>Whether there was a forecast of the bars up to it.</summary>
    public required bool HasForecast { get; init; }

    /// <summary>The same day without what was sent of those after it.</summary>
    public KeptDay WithoutAhead() => Ahead.Count == 0
        ? this
        : new() { Session = Session, Values = Values, HasCome = HasCome, IsAnswered = IsAnswered, HasForecast = HasForecast };
}
