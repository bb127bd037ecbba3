namespace Quantra.Client;

/// <summary>A price of a symbol.</summary>
/// <param name="Symbol">The symbol.</param>
/// <param name="Price">The price, in the bars' currency.</param>
public sealed record PriceLevel(string Symbol, double Price)
{
    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "AAPL at 450".</returns>
    public override string ToString() => FormattableString.Invariant($"{Symbol} at {Price}");
}
