namespace Quantra.Client;

/// <summary>Result of a push to a session.</summary>
/// <param name="Forecast">The forecast of all bars sent so far; null = the day has no forecast, or not yet.</param>
/// <param name="WaitsFor">Symbols whose bars of the day are missing; empty if there is a forecast or nothing traded that day.</param>
public sealed record PushResult(Forecast? Forecast, IReadOnlyList<string> WaitsFor)
{
    /// <summary>Returns the forecast, or throws if there is none.</summary>
    /// <returns>The forecast.</returns>
    /// <exception cref="InvalidOperationException">The day is waiting for bars, or nothing traded.</exception>
    public Forecast GetForecast() => Forecast ?? throw CreateMissingError();

    /// <inheritdoc/>
    public bool Equals(PushResult? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "small@1 as of 2013-03-01, 2 symbols", or "taken; the day waits for IBM".</returns>
    public override string ToString() =>
        Forecast?.Title() ?? (WaitsFor.Count > 0 ? $"taken; the day waits for {MessageFormat.First(WaitsFor)}" : "taken; nothing traded that day");

    private InvalidOperationException CreateMissingError() => new($"there is no forecast: {this}");

    private object?[] Parts() =>
    [
        Forecast,
        ValueEquality.Of(WaitsFor),
    ];
}
