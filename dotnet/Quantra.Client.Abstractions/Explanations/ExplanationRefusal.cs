namespace Quantra.Client;

/// <summary>An instance that could not be explained, or one symbol of it.</summary>
/// <param name="Place">Index of the instance in the request, from 0.</param>
/// <param name="Symbol">The symbol; empty = the whole instance.</param>
/// <param name="Error">The reason.</param>
public sealed record ExplanationRefusal(int Place, string Symbol, QuantraError Error)
{
    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "instance 3, IBM: TOO_FEW_BARS: 1 bar, 30 are needed".</returns>
    public override string ToString() =>
        FormattableString.Invariant($"instance {Place}{(Symbol.Length > 0 ? $", {Symbol}" : "")}: {Error}");
}
