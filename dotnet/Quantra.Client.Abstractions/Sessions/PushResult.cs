namespace Quantra.Client;

/// <summary>What became of bars that were pushed to a session.</summary>
/// <param name="Forecast">The forecast of all bars sent so far; null = there is none of this day, or not yet.</param>
/// <param name="WaitsFor">Symbols whose bars of the day have not come yet; empty if there is a forecast, or nothing traded that day.</param>
public sealed record PushResult(Forecast? Forecast, IReadOnlyList<string> WaitsFor)
{
    /// <summary>The forecast, where there must be one.</summary>
    /// <returns>The forecast.</returns>
    /// <exception cref="InvalidOperationException">The day waits for bars, or nothing traded.</exception>
    public Forecast GetForecast() => Forecast ?? throw Missing();

    /// <inheritdoc/>
    public bool Equals(PushResult? other) => other is not null && ByValue.Same(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ByValue.Hash(Parts());

    /// <summary>One line, the same in every culture.</summary>
    /// <returns>Such as "small@1 as of 2013-03-01, 2 symbols", or "taken; the day waits for IBM".</returns>
    public override string ToString() =>
        Forecast?.Title() ?? (WaitsFor.Count > 0 ? $"taken; the day waits for {Listed.First(WaitsFor)}" : "taken; nothing traded that day");

    private InvalidOperationException Missing() => new($"there is no forecast: {this}");

    private object?[] Parts() =>
    [
        Forecast,
        ByValue.Of(WaitsFor),
    ];
}
