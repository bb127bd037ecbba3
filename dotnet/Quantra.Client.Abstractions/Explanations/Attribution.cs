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

    /// <summary>Method: "integrated-gradients", "tree-shap" of models of trees, "shapley", or "occlusion", which does not add up.</summary>
    public required string Method { get; init; }

    /// <summary>The baseline of the comparison: "train_mean", the typical input, or "train_windows", the mean of the training windows.</summary>
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

    /// <summary>[S] the explained number.</summary>
    public required ReadOnlyMemory<double> Prediction { get; init; }

    /// <summary>[S] the model's number for the baseline.</summary>
    public required ReadOnlyMemory<double> BaselinePrediction { get; init; }

    /// <summary>[S] difference between the sum of the rows and the change to explain, relative to that change.</summary>
    public required ReadOnlyMemory<double> RelativeGap { get; init; }

    /// <summary>[S] whether the gap is within the requested tolerance.</summary>
    public required IReadOnlyList<bool> Converged { get; init; }

    /// <summary>[S] number of points at which the gradient was computed.</summary>
    public required IReadOnlyList<int> Nodes { get; init; }

    /// <summary>Name of the model that answered.</summary>
    public required string Model { get; init; }

    /// <summary>Version of the model that answered.</summary>
    public required int Version { get; init; }

    /// <summary>SHA-256 of the model's weights.</summary>
    public required string WeightsHash { get; init; }

    /// <summary>Warnings about the input or the forecast.</summary>
    public required IReadOnlyList<string> Warnings { get; init; }

    /// <summary>Weights that the network reports, if any: variable selection or attention.</summary>
    public required IReadOnlyList<NetworkInternal> Internals { get; init; }

    /// <summary>The model's skill on held-out days; null if its card does not state it.</summary>
    public required Skill? Skill { get; init; }

    /// <summary>Errors of the symbols without a forecast, whose rows are NaN.</summary>
    public IReadOnlyDictionary<string, QuantraError> Refusals { get; init; } = ReadOnlyDictionary<string, QuantraError>.Empty;

    /// <summary>Returns the contributions to one symbol's number.</summary>
    /// <param name="symbol">One of <see cref="Symbols"/>.</param>
    /// <returns>R rows, largest absolute contribution first.</returns>
    /// <exception cref="ArgumentException">The attribution does not have the symbol.</exception>
    public IReadOnlyList<Contribution> Table(string symbol)
    {
        var values = PerRow.Slice(Axis.IndexOf(Symbols, symbol, nameof(symbol)) * RowNames.Count, RowNames.Count).ToArray();
        return [.. values
            .Select((value, row) => new Contribution(RowNames[row], RowKinds[row], value))
            .OrderByDescending(row => Math.Abs(row.Value))];
    }

    /// <summary>Returns the network's own weights for one symbol. They do not show what moved the forecast.</summary>
    /// <param name="symbol">One of <see cref="Symbols"/>.</param>
    /// <param name="name">The name of one of <see cref="Internals"/>.</param>
    /// <returns>L shares, largest first.</returns>
    /// <exception cref="ArgumentException">The attribution does not have the symbol or internal.</exception>
    public IReadOnlyList<Share> Shares(string symbol, string name)
    {
        var weights = Internals[Axis.IndexOf([.. Internals.Select(one => one.Name)], name, nameof(name))];
        var row = Axis.IndexOf(Symbols, symbol, nameof(symbol));
        var values = weights.Values.Slice(row * weights.Labels.Count, weights.Labels.Count).ToArray();
        return [.. values.Select((value, index) => new Share(weights.Describe(index), value)).OrderByDescending(share => share.Value)];
    }

    /// <inheritdoc/>
    public bool Equals(Attribution? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "small@1 as of 2013-03-01: q0.5 at 5 days of AAPL; 28 inputs, integrated-gradients".</returns>
    public override string ToString()
    {
        var (target, inputs) = (new ExplanationTarget(Horizon, Quantile), MessageFormat.Count(RowNames.Count, "input"));
        return FormattableString.Invariant(
            $"{Model}@{Version}{MessageFormat.AsOf(AsOf)}: {target} of {MessageFormat.Symbols(Symbols)}; {inputs}, {Method}");
    }

    private object?[] Parts() =>
    [
        ValueEquality.Of(Symbols),
        AsOf,
        Horizon,
        Quantile,
        Method,
        Baseline,
        Unit,
        ValueEquality.Of(RowNames),
        ValueEquality.Of(RowKinds),
        ValueEquality.Of(PerRow),
        ValueEquality.Of(Sessions),
        ValueEquality.Of(PerTime),
        ValueEquality.Of(Cells),
        ValueEquality.Of(Prediction),
        ValueEquality.Of(BaselinePrediction),
        ValueEquality.Of(RelativeGap),
        ValueEquality.Of(Converged),
        ValueEquality.Of(Nodes),
        Model,
        Version,
        WeightsHash,
        ValueEquality.Of(Warnings),
        ValueEquality.Of(Internals),
        Skill,
        ValueEquality.Of(Refusals),
    ];
}
