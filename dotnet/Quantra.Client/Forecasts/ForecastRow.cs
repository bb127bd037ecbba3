namespace Quantra.Client;

/// <summary>One number of a forecast, as a row of a table.</summary>
/// <param name="Symbol">The symbol.</param>
/// <param name="Horizon">Trading days ahead.</param>
/// <param name="Session">The session on which the horizon ends; null if the last bar's is unknown.</param>
/// <param name="Quantile">Level in (0, 1).</param>
/// <param name="Value">In the target's unit: a log return, or the log of a volatility; NaN = no forecast for this symbol.</param>
/// <param name="Price">In the bars' currency; NaN if the forecast has no prices.</param>
/// <param name="Score">Of the symbol and horizon, larger = expected to do better; NaN if the model does not rank.</param>
/// <param name="Rank">By score, 1 = best; 0 = none.</param>
public readonly record struct ForecastRow(
    string Symbol,
    int Horizon,
    DateOnly? Session,
    double Quantile,
    double Value,
    double Price,
    double Score,
    int Rank);
