namespace Quantra.Desktop.ViewModels;

/// <summary>A table row: one horizon of a forecast.</summary>
/// <param name="Days">Horizon in trading days.</param>
/// <param name="Session">Day on which the horizon ends, yyyy-MM-dd; "" = unknown.</param>
/// <param name="Values">One text per quantile: price and simple return, or the target's value.</param>
public sealed record ForecastLine(int Days, string Session, IReadOnlyList<string> Values);
