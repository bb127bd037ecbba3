using System.Collections.ObjectModel;

namespace Quantra.Client;

/// <summary>What a model reads with a panel of bars: values by name, aligned with its S symbols and T sessions.</summary>
/// <remarks>
/// <see cref="ModelInfo.Covariates"/> lists what a model needs: send all of them, and no others. Arrays are row-major
/// and sent without a copy. NaN, or an empty text, means unknown; a static text that the model does not know counts as
/// unknown, and the forecast warns about it.
/// </remarks>
public sealed record Covariates
{
    /// <summary>None.</summary>
    public static Covariates None { get; } = new();

    /// <summary>[S, T] each, as known at the close of each session.</summary>
    public IReadOnlyDictionary<string, ReadOnlyMemory<double>> Observed { get; init; } = Empty<ReadOnlyMemory<double>>();

    /// <summary>[S, T + D] each, for the bars' sessions and then for <see cref="FutureSessions"/>.</summary>
    public IReadOnlyDictionary<string, ReadOnlyMemory<double>> Known { get; init; } = Empty<ReadOnlyMemory<double>>();

    /// <summary>
    /// [D] days after the last bar, in order; at least the next <see cref="ModelInfo.FutureLength"/> sessions of the model's
    /// calendar. Extra days do no harm.
    /// </summary>
    public ReadOnlyMemory<DateOnly> FutureSessions { get; init; }

    /// <summary>[S] each: static numbers.</summary>
    public IReadOnlyDictionary<string, ReadOnlyMemory<double>> Numbers { get; init; } = Empty<ReadOnlyMemory<double>>();

    /// <summary>Static texts, one per symbol each, such as its sector.</summary>
    public IReadOnlyDictionary<string, IReadOnlyList<string>> Categories { get; init; } = Empty<IReadOnlyList<string>>();

    /// <summary>Whether there are none.</summary>
    public bool IsEmpty => Observed.Count + Known.Count + Numbers.Count + Categories.Count == 0;

    /// <inheritdoc/>
    public bool Equals(Covariates? other) => other is not null && ByValue.Same(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ByValue.Hash(Parts());

    /// <summary>One line, the same in every culture.</summary>
    /// <returns>Such as "covariates short_interest, sector".</returns>
    public override string ToString() => IsEmpty
            ? "no covariates"
            : $"covariates {Listed.First([.. Observed.Keys, .. Known.Keys, .. Numbers.Keys, .. Categories.Keys])}";

    private static ReadOnlyDictionary<string, T> Empty<T>() => ReadOnlyDictionary<string, T>.Empty;

    private object?[] Parts() =>
    [
        ByValue.Of(Observed),
        ByValue.Of(Known),
        ByValue.Of(FutureSessions),
        ByValue.Of(Numbers),
        ByValue.Of(Categories),
    ];
}
