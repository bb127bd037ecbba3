namespace Quantra.Client;

/// <summary>Bars and covariates of one day of a session, possibly incomplete. Immutable.</summary>
internal sealed class SessionDay
{
    public required DateOnly Session { get; init; }

    /// <summary>[C, S] numbers; NaN = missing.</summary>
    public required double[] Values { get; init; }

    /// <summary>[S] symbols whose bars have arrived or are known not to exist; null = all.</summary>
    public bool[]? HasCome { get; init; }

    /// <summary>Known covariates of later days, in order: [K, S] each.</summary>
    public IReadOnlyList<(DateOnly Session, double[] Values)> Ahead { get; init; } = [];

    /// <summary>Whether the day was complete or flushed before. From then on each of its bars is answered.</summary>
    public required bool IsAnswered { get; init; }

    /// <summary>Whether the day had a forecast.</summary>
    public required bool HasForecast { get; init; }

    /// <summary>Returns the day without the covariates of later days.</summary>
    public SessionDay RemoveAhead() => Ahead.Count == 0
        ? this
        : new() { Session = Session, Values = Values, HasCome = HasCome, IsAnswered = IsAnswered, HasForecast = HasForecast };
}
