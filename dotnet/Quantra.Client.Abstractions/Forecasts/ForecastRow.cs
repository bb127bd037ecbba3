using System.Globalization;

namespace Quantra.Client;

/// <summary>One number of a forecast as a table row.</summary>
/// <param name="Symbol">The symbol.</param>
/// <param name="Horizon">Trading days ahead.</param>
/// <param name="Session">The session on which the horizon ends; null if the last bar's is unknown.</param>
/// <param name="Quantile">Level in (0, 1).</param>
/// <param name="Value">Value in the target's unit: a log return or the log of a volatility; NaN = no forecast for this symbol.</param>
/// <param name="Price">Price in the bars' currency; NaN if the forecast has no prices.</param>
/// <param name="Score">Score of the symbol and horizon, larger = expected to do better; NaN if the model does not rank.</param>
/// <param name="Rank">Rank by score, 1 = best; 0 = none.</param>
public readonly record struct ForecastRow(
    string Symbol,
    int Horizon,
    DateOnly? Session,
    double Quantile,
    double Value,
    double Price,
    double Score,
    int Rank)
{
    /// <summary>One line, the same in every culture, without the values that the forecast does not have.</summary>
    /// <returns>For example "AAPL, 5 days, 2013-03-08, q0.5: 0.0012, price 431.2".</returns>
    public override string ToString()
    {
        var session = Session is { } day ? string.Create(CultureInfo.InvariantCulture, $", {day:yyyy-MM-dd}") : "";
        var price = double.IsNaN(Price) ? "" : FormattableString.Invariant($", price {Price}");
        var rank = Rank == 0 ? "" : FormattableString.Invariant($", score {Score}, rank {Rank}");
        return FormattableString.Invariant($"{Symbol}, {MessageFormat.Count(Horizon, "day")}{session}, q{Quantile:0.###}: {Value}{price}{rank}");
    }
}
