namespace Quantra.Client;

/// <summary>One cell of a forecast, for tables.</summary>
/// <param name="Symbol">Whose.</param>
/// <param name="Horizon">Trading days ahead.</param>
/// <param name="Session">The day that the horizon ends on; null if the last bar's day is unknown.</param>
/// <param name="Quantile">Level in (0, 1).</param>
/// <param name="Value">In the target's unit: a log return, or the log of a volatility; NaN = no forecast for this symbol.</param>
/// <param name="Price">In the bars' currency; NaN where the forecast has no prices.</param>
/// <param name="Score">Of the symbol and horizon, larger = expected to do better; NaN where the model does not rank.</param>
/// <param name="Rank">By score, 1 = best; 0 where there is none.</param>
public readonly record struct ForecastRow(
    string Symbol,
    int Horizon,
    DateOnly? Session,
    double Quantile,
    double Value,
    double Price,
    double Score,
    int Rank);
