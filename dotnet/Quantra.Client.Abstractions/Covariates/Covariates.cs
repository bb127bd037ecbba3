using System.Collections.ObjectModel;

namespace Quantra.Client;

/// <summary>What a model reads in addition to bars: values by name, aligned with S symbols and T sessions.</summary>
/// <remarks>
/// Send exactly the covariates in <see cref="ModelInfo.Covariates"/>. Arrays are row-major and sent without a copy. NaN and empty texts mean
/// unknown. A static text that the model does not know counts as unknown, and the forecast has a warning.
/// </remarks>
public sealed record Covariates
{
    /// <summary>No covariates.</summary>
    public static Covariates None { get; } = new();

    /// <summary>[S, T] each, as known at the close of each session.</summary>
    public IReadOnlyDictionary<string, ReadOnlyMemory<double>> Observed { get; init; } = Empty<ReadOnlyMemory<double>>();

    /// <summary>[S, T + D] each, for the bars' sessions and then <see cref="FutureSessions"/>.</summary>
    public IReadOnlyDictionary<string, ReadOnlyMemory<double>> Known { get; init; } = Empty<ReadOnlyMemory<double>>();

    /// <summary>
    /// [D] days after the last bar, in order; at least the next <see cref="ModelInfo.FutureLength"/> sessions of the model's calendar. More days
    /// are allowed.
    /// </summary>
    public ReadOnlyMemory<DateOnly> FutureSessions { get; init; }

    /// <summary>[S] static numbers each.</summary>
    public IReadOnlyDictionary<string, ReadOnlyMemory<double>> Numbers { get; init; } = Empty<ReadOnlyMemory<double>>();

    /// <summary>Static texts, one per symbol each, for example its sector.</summary>
    public IReadOnlyDictionary<string, IReadOnlyList<string>> Categories { get; init; } = Empty<IReadOnlyList<string>>();

    /// <summary>Whether there are no covariates.</summary>
    public bool IsEmpty => Observed.Count + Known.Count + Numbers.Count + Categories.Count == 0;

    /// <inheritdoc/>
    public bool Equals(Covariates? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "covariates short_interest, sector".</returns>
    public override string ToString() => IsEmpty
        ? "no covariates"
        : $"covariates {MessageFormat.First([.. Observed.Keys, .. Known.Keys, .. Numbers.Keys, .. Categories.Keys])}";

    private static ReadOnlyDictionary<string, T> Empty<T>() => ReadOnlyDictionary<string, T>.Empty;

    private object?[] Parts() =>
    [
        ValueEquality.Of(Observed),
        ValueEquality.Of(Known),
        ValueEquality.Of(FutureSessions),
        ValueEquality.Of(Numbers),
        ValueEquality.Of(Categories),
    ];
}
