namespace Quantra.Client;

/// <summary>N simulated joint price paths of S symbols over D days after the last bar, and answers from them.</summary>
public sealed record PathSimulation
{
    /// <summary>S symbols with paths.</summary>
    public required IReadOnlyList<string> Symbols { get; init; }

    /// <summary>Session of the last bar.</summary>
    public required DateOnly? AsOf { get; init; }

    /// <summary>[S] close of <see cref="AsOf"/>, not adjusted.</summary>
    public required ReadOnlyMemory<double> AnchorPrice { get; init; }

    /// <summary>D, the number of days of each path.</summary>
    public required int Days { get; init; }

    /// <summary>N, the number of paths.</summary>
    public required int Paths { get; init; }

    /// <summary>Past days that the paths come from. Neighbours overlap: about <c>PastDays / Days</c> of them are independent.</summary>
    public required int PastDays { get; init; }

    /// <summary><see cref="Forecast.ForecastId"/> of the forecast that the paths have the distribution of.</summary>
    public required string ForecastId { get; init; }

    /// <summary>Name of the model.</summary>
    public required string Model { get; init; }

    /// <summary>Version of the model.</summary>
    public required int Version { get; init; }

    /// <summary>Warnings about the input or the forecast.</summary>
    public required IReadOnlyList<string> Warnings { get; init; }

    /// <summary>Errors of the symbols without paths.</summary>
    public required IReadOnlyDictionary<string, QuantraError> Refusals { get; init; }

    /// <summary>The day of the answers, 1 = the first session after the last bar.</summary>
    public required int Day { get; init; }

    /// <summary>Loss of the holdings up to the day that is exceeded with probability 1 - level, in their unit; null without holdings.</summary>
    public required Estimate? ValueAtRisk { get; init; }

    /// <summary>Mean loss of the holdings in the worst 1 - level of the paths, in their unit; null without holdings.</summary>
    public required Estimate? ExpectedShortfall { get; init; }

    /// <summary>Largest loss from a high, as a share of the holdings, that 1 in 20 paths exceeds; null without holdings.</summary>
    public required Estimate? Drawdown { get; init; }

    /// <summary>One entry per requested price, in order.</summary>
    public required IReadOnlyList<PriceProbability> PriceProbabilities { get; init; }

    /// <summary>[N, S, D] log returns from the last close to the close of each day, row-major; null if the paths were not requested.</summary>
    public required ReadOnlyMemory<double>? Returns { get; init; }

    /// <summary>Returns the close of one symbol on one day of one path.</summary>
    /// <param name="path">From 0. The same path of all symbols is one joint path.</param>
    /// <param name="symbol">One of <see cref="Symbols"/>.</param>
    /// <param name="day">1 = the first session after the last bar, at most <see cref="Days"/>.</param>
    /// <returns>Price in the bars' currency.</returns>
    /// <exception cref="ArgumentException">There is no such path, symbol or day.</exception>
    /// <exception cref="InvalidOperationException">The paths were not requested.</exception>
    public double Price(int path, string symbol, int day)
    {
        var returns = Returns ?? throw new InvalidOperationException("there are no paths; set IncludePaths of the request");
        ArgumentOutOfRangeException.ThrowIfNegative(path);
        ArgumentOutOfRangeException.ThrowIfGreaterThanOrEqual(path, Paths);
        ArgumentOutOfRangeException.ThrowIfLessThan(day, 1);
        ArgumentOutOfRangeException.ThrowIfGreaterThan(day, Days);
        var row = Axis.IndexOf(Symbols, symbol, nameof(symbol));
        return AnchorPrice.Span[row] * Math.Exp(returns.Span[(((path * Symbols.Count) + row) * Days) + day - 1]);
    }

    /// <inheritdoc/>
    public bool Equals(PathSimulation? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "small@1 as of 2013-03-01, 2 symbols: 1000 paths over 20 days".</returns>
    public override string ToString() => FormattableString.Invariant(
        $"{Model}@{Version}{MessageFormat.AsOf(AsOf)}, {MessageFormat.Count(Symbols.Count, "symbol")}: {MessageFormat.Count(Paths, "path")} over {MessageFormat.Count(Days, "day")}");

    private object?[] Parts() =>
    [
        ValueEquality.Of(Symbols),
        AsOf,
        ValueEquality.Of(AnchorPrice),
        Days,
        Paths,
        PastDays,
        ForecastId,
        Model,
        Version,
        ValueEquality.Of(Warnings),
        ValueEquality.Of(Refusals),
        Day,
        ValueAtRisk,
        ExpectedShortfall,
        Drawdown,
        ValueEquality.Of(PriceProbabilities),
        ValueEquality.Of(Returns),
    ];
}
