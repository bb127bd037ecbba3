namespace Quantra.Desktop.ViewModels;

/// <summary>A horizon of a forecast, as the table below the chart has it.</summary>
/// <param name="Days">Trading days ahead.</param>
/// <param name="Session">The day on which it ends, yyyy-MM-dd; "" = unknown.</param>
/// <param name="Values">One text per quantile: a price and the simple return, or what the target is.</param>
public sealed record ForecastLine(int Days, string Session, IReadOnlyList<string> Values);
