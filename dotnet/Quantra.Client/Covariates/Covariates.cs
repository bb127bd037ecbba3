namespace Quantra.Client;

/// <summary>What a model reads beside a panel of bars: values by name, aligned with its S symbols and T sessions.</summary>
/// <remarks>
/// <see cref="ModelInfo.Covariates"/> tells which a model needs: every one of them, and no other. Arrays are row-major and
/// sent without a copy. NaN, or an empty text, means unknown; a static text that the model does not know counts as
/// unknown, and the forecast warns of it.
/// </remarks>
public sealed record Covariates
{
    /// <summary>None.</summary>
    public static Covariates None { get; } = new();

    /// <summary>[S, T] each, as known at the close of that session.</summary>
    public IReadOnlyDictionary<string, ReadOnlyMemory<double>> Observed { get; init; } = Empty<ReadOnlyMemory<double>>();

    /// <summary>[S, T + D] each, of the bars' sessions and then of <see cref="FutureSessions"/>.</summary>
    public IReadOnlyDictionary<string, ReadOnlyMemory<double>> Known { get; init; } = Empty<ReadOnlyMemory<double>>();

    /// <summary>
    /// [D] days after the last bar, rising; at least the next <see cref="ModelInfo.FutureLength"/> sessions of the model's
    /// calendar. Days too many do no harm.
    /// </summary>
    public ReadOnlyMemory<DateOnly> FutureSessions { get; init; }

    /// <summary>[S] each: numbers that stay the same.</summary>
    public IReadOnlyDictionary<string, ReadOnlyMemory<double>> Numbers { get; init; } = Empty<ReadOnlyMemory<double>>();

    /// <summary>One text a symbol each, such as its sector.</summary>
    public IReadOnlyDictionary<string, IReadOnlyList<string>> Categories { get; init; } = Empty<IReadOnlyList<string>>();

    /// <summary>Whether there are none.</summary>
    public bool IsEmpty => Observed.Count + Known.Count + Numbers.Count + Categories.Count == 0;

    private static Dictionary<string, T> Empty<T>() => [];
}
