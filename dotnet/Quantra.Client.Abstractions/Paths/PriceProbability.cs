namespace Quantra.Client;

/// <summary>How probable a price of a symbol is.</summary>
/// <param name="Symbol">The symbol.</param>
/// <param name="Price">The price, in the bars' currency.</param>
/// <param name="Above">Probability of a close above the price on the day of the answers.</param>
/// <param name="Touched">
/// Probability of a close at or beyond the price on any session up to that day. Prices within a day are not simulated, so the true
/// probability is higher.
/// </param>
public sealed record PriceProbability(string Symbol, double Price, Estimate Above, Estimate Touched)
{
    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "AAPL at 450: above 0.25 (0.2 to 0.3), touched 0.5 (0.4 to 0.6)".</returns>
    public override string ToString() => FormattableString.Invariant($"{Symbol} at {Price}: above {Above}, touched {Touched}");
}
