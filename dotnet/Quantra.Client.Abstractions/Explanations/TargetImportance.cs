namespace Quantra.Client;

/// <summary>How much each of R inputs moves one number of the forecasts.</summary>
public sealed record TargetImportance
{
    /// <summary>Trading days ahead.</summary>
    public required int Horizon { get; init; }

    /// <summary>Level in (0, 1).</summary>
    public required double Quantile { get; init; }

    /// <summary>Unit of the sizes, for example "log return".</summary>
    public required string Unit { get; init; }

    /// <summary>[R] names of the inputs.</summary>
    public required IReadOnlyList<string> RowNames { get; init; }

    /// <summary>[R] kinds of the inputs.</summary>
    public required IReadOnlyList<RowKind> RowKinds { get; init; }

    /// <summary>[R] mean absolute contribution over the symbols of all instances.</summary>
    public required ReadOnlyMemory<double> MeanSize { get; init; }

    /// <summary>[R] standard error of <see cref="MeanSize"/> between instances; NaN until there are two.</summary>
    public required ReadOnlyMemory<double> StandardError { get; init; }

    /// <summary>Number of symbols, over all instances, in the mean.</summary>
    public required long Windows { get; init; }

    /// <summary>Share of them whose explanation is within the tolerance, 0 to 1.</summary>
    public required double Converged { get; init; }

    /// <summary>Returns the inputs ordered by size.</summary>
    /// <returns>R rows, largest first.</returns>
    public IReadOnlyList<InputImportance> Table()
    {
        var (sizes, errors) = (MeanSize.ToArray(), StandardError.ToArray());
        return [.. sizes
            .Select((size, row) => new InputImportance(RowNames[row], RowKinds[row], size, errors[row]))
            .OrderByDescending(row => row.MeanSize)];
    }

    /// <inheritdoc/>
    public bool Equals(TargetImportance? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "q0.5 at 5 days: 28 inputs over 40 windows".</returns>
    public override string ToString()
    {
        var inputs = MessageFormat.Count(RowNames.Count, "input");
        return FormattableString.Invariant($"{new ExplanationTarget(Horizon, Quantile)}: {inputs} over {Windows} windows");
    }

    private object?[] Parts() =>
    [
        Horizon,
        Quantile,
        Unit,
        ValueEquality.Of(RowNames),
        ValueEquality.Of(RowKinds),
        ValueEquality.Of(MeanSize),
        ValueEquality.Of(StandardError),
        Windows,
        Converged,
    ];
}
