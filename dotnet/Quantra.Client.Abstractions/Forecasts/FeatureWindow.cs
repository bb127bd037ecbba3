namespace Quantra.Client;

/// <summary>Network inputs for S symbols, for callers who compute the model's features themselves.</summary>
/// <remarks>
/// T encoder sessions, D future sessions, F observed, K known and C static features: see <see cref="ModelInfo"/>. Arrays
/// are row-major and sent without a copy.
/// </remarks>
public sealed record FeatureWindow
{
    /// <summary>S unique names.</summary>
    public required IReadOnlyList<string> Symbols { get; init; }

    /// <summary>T, the number of sessions that the network reads.</summary>
    public required int EncoderLength { get; init; }

    /// <summary>D, the number of sessions after the last bar that known features cover.</summary>
    public required int FutureLength { get; init; }

    /// <summary>[S, T, F] scaled features; 0 where <see cref="Mask"/> is false.</summary>
    public required ReadOnlyMemory<float> Observed { get; init; }

    /// <summary>[S, T + D, K]; empty if the model has none.</summary>
    public ReadOnlyMemory<float> Known { get; init; }

    /// <summary>[S, C]; empty if the model has none.</summary>
    public ReadOnlyMemory<float> Static { get; init; }

    /// <summary>[S, T, F] true where the cell is known; empty = every cell is known.</summary>
    public ReadOnlyMemory<bool> Mask { get; init; }

    /// <summary>[S] location of the target; [S, H], one per horizon, for a model with fitted locations.</summary>
    public required ReadOnlyMemory<double> Location { get; init; }

    /// <summary>Volatility, positive, in the shape of <see cref="Location"/>.</summary>
    public required ReadOnlyMemory<double> Scale { get; init; }

    /// <summary>Hash of the features; must equal <see cref="ModelInfo.SchemaHash"/>.</summary>
    public required string SchemaHash { get; init; }

    /// <summary>Names of the F observed features, in order; empty = only <see cref="SchemaHash"/> is checked.</summary>
    public IReadOnlyList<string> Features { get; init; } = [];

    /// <summary>[S] last close; empty = unknown, and the forecast has no prices.</summary>
    public ReadOnlyMemory<double> AnchorPrice { get; init; }

    /// <summary>Session of the last row; null = unknown, and the forecast has no sessions.</summary>
    public DateOnly? AsOf { get; init; }

    /// <inheritdoc/>
    public bool Equals(FeatureWindow? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "feature windows of AAPL; 60 sessions and 20 ahead as of 2013-03-01".</returns>
    public override string ToString()
    {
        var sessions = MessageFormat.Count(EncoderLength, "session");
        return FormattableString.Invariant(
            $"feature windows of {MessageFormat.Symbols(Symbols)}; {sessions} and {FutureLength} ahead{MessageFormat.AsOf(AsOf)}");
    }

    private object?[] Parts() =>
    [
        ValueEquality.Of(Symbols),
        EncoderLength,
        FutureLength,
        ValueEquality.Of(Observed),
        ValueEquality.Of(Known),
        ValueEquality.Of(Static),
        ValueEquality.Of(Mask),
        ValueEquality.Of(Location),
        ValueEquality.Of(Scale),
        SchemaHash,
        ValueEquality.Of(Features),
        ValueEquality.Of(AnchorPrice),
        AsOf,
    ];
}
