using System.Collections.ObjectModel;

namespace Quantra.Client;

/// <summary>Signed contributions of R inputs to one number of a forecast, for S symbols.</summary>
/// <remarks>A symbol's rows add up to Prediction - BaselinePrediction within RelativeGap.</remarks>
public sealed record Attribution
{
    /// <summary>S names, in the order of the request.</summary>
    public required IReadOnlyList<string> Symbols { get; init; }

    /// <summary>Session of the last bar; null if unknown.</summary>
    public required DateOnly? AsOf { get; init; }

    /// <summary>Trading days ahead.</summary>
    public required int Horizon { get; init; }

    /// <summary>Level in (0, 1).</summary>
    public required double Quantile { get; init; }

    /// <summary>How it was computed: "integrated-gradients".</summary>
    public required string Method { get; init; }

    /// <summary>The input that the forecast is compared with.</summary>
    public required string Baseline { get; init; }

    /// <summary>Unit of every contribution.</summary>
    public required string Unit { get; init; }

    /// <summary>R names of inputs.</summary>
    public required IReadOnlyList<string> RowNames { get; init; }

    /// <summary>R kinds of inputs.</summary>
    public required IReadOnlyList<RowKind> RowKinds { get; init; }

    /// <summary>[S, R] contributions, row-major.</summary>
    public required ReadOnlyMemory<double> PerRow { get; init; }

    /// <summary>[T] sessions that the network reads; empty if unknown.</summary>
    public required IReadOnlyList<DateOnly> Sessions { get; init; }

    /// <summary>[S, T] contributions by session; null unless requested.</summary>
    public required ReadOnlyMemory<double>? PerTime { get; init; }

    /// <summary>[S, T, F] contributions of each observed cell; null unless requested.</summary>
    public required ReadOnlyMemory<double>? Cells { get; init; }

    /// <summary>[S] the number explained.</summary>
    public required ReadOnlyMemory<double> Prediction { get; init; }

    /// <summary>[S] the model's number for the baseline.</summary>
    public required ReadOnlyMemory<double> BaselinePrediction { get; init; }

    /// <summary>[S] how far the sum of the rows misses the difference, relative to the difference.</summary>
    public required ReadOnlyMemory<double> RelativeGap { get; init; }

    /// <summary>[S] whether the gap is within the requested tolerance.</summary>
    public required IReadOnlyList<bool> Converged { get; init; }

    /// <summary>[S] number of points at which gradients were computed.</summary>
    public required IReadOnlyList<int> Nodes { get; init; }

    /// <summary>Name of the model that answered.</summary>
    public required string Model { get; init; }

    /// <summary>Version of the model that answered.</summary>
    public required int Version { get; init; }

    /// <summary>SHA-256 of the model's weights.</summary>
    public required string WeightsHash { get; init; }

    /// <summary>What to know before using the numbers.</summary>
    public required IReadOnlyList<string> Warnings { get; init; }

    /// <summary>Weights that the network itself reports, if any: its variable selection, its attention.</summary>
    public required IReadOnlyList<NetworkInternal> Internals { get; init; }

    /// <summary>How the model did on days that it had not seen; null if its card does not say.</summary>
    public required Skill? Skill { get; init; }

    /// <summary>Why each symbol without a forecast, and so with NaN rows, has none.</summary>
    public IReadOnlyDictionary<string, QuantraError> Refusals { get; init; } = ReadOnlyDictionary<string, QuantraError>.Empty;

    /// <summary>The contributions to one symbol's number.</summary>
    /// <param name="symbol">One of <see cref="Symbols"/>.</param>
    /// <returns>R rows, largest absolute contribution first.</returns>
    /// <exception cref="ArgumentException">The attribution has no such symbol.</exception>
    public IReadOnlyList<Contribution> Table(string symbol)
    {
        var values = PerRow.Slice(Axis.IndexOf(Symbols, symbol, nameof(symbol)) * RowNames.Count, RowNames.Count).ToArray();
        return [.. values
            .Select((value, row) => new Contribution(RowNames[row], RowKinds[row], value))
            .OrderByDescending(row => Math.Abs(row.Value))];
    }

    /// <summary>What the network weighted in computing one symbol's number, which is not what moved the number.</summary>
    /// <param name="symbol">One of <see cref="Symbols"/>.</param>
    /// <param name="name">The name of one of <see cref="Internals"/>.</param>
    /// <returns>L shares, largest first.</returns>
    /// <exception cref="ArgumentException">The attribution has no such symbol or internal.</exception>
    public IReadOnlyList<Share> Shares(string symbol, string name)
    {
        var weights = Internals[Axis.IndexOf([.. Internals.Select(one => one.Name)], name, nameof(name))];
        var row = Axis.IndexOf(Symbols, symbol, nameof(symbol));
        var values = weights.Values.Slice(row * weights.Labels.Count, weights.Labels.Count).ToArray();
        return [.. values.Select((value, place) => new Share(weights.InWords(place), value)).OrderByDescending(share => share.Value)];
    }

    /// <inheritdoc/>
    public bool Equals(Attribution? other) => other is not null && ByValue.Same(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ByValue.Hash(Parts());

    /// <summary>One line, the same in every culture.</summary>
    /// <returns>Such as "small@1 as of 2013-03-01: q0.5 at 5 days of AAPL; 28 inputs, integrated-gradients".</returns>
    public override string ToString()
    {
        var (target, inputs) = (new ExplanationTarget(Horizon, Quantile), Listed.Count(RowNames.Count, "input"));
        return FormattableString.Invariant(
            $"{Model}@{Version}{Listed.AsOf(AsOf)}: {target} of {Listed.Symbols(Symbols)}; {inputs}, {Method}");
    }

    private object?[] Parts() =>
    [
        ByValue.Of(Symbols),
        AsOf,
        Horizon,
        Quantile,
        Method,
        Baseline,
        Unit,
        ByValue.Of(RowNames),
        ByValue.Of(RowKinds),
        ByValue.Of(PerRow),
        ByValue.Of(Sessions),
        ByValue.Of(PerTime),
        ByValue.Of(Cells),
        ByValue.Of(Prediction),
        ByValue.Of(BaselinePrediction),
        ByValue.Of(RelativeGap),
        ByValue.Of(Converged),
        ByValue.Of(Nodes),
        Model,
        Version,
        WeightsHash,
        ByValue.Of(Warnings),
        ByValue.Of(Internals),
        Skill,
        ByValue.Of(Refusals),
    ];
}
