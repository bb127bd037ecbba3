namespace Quantra.Client.Managed;

/// <summary>A request prepared for each member of an ensemble.</summary>
internal sealed class JointlyPrepared
{
    /// <param name="members">The request of each member.</param>
    /// <param name="bars">The bars of the request; null for feature windows.</param>
    /// <exception cref="QuantraException">NO_USABLE_SYMBOL: every symbol has a member that cannot forecast it.</exception>
    public JointlyPrepared(PreparedRequest[] members, RawBars? bars)
    {
        (Members, Bars) = (members, bars);
        Usable = [.. members[0].Usable.Select((_, row) => Array.TrueForAll(members, one => one.Usable[row]))];
        var refusals = new Dictionary<string, QuantraError>(StringComparer.Ordinal);
        foreach (var (symbol, error) in members.SelectMany(one => one.Refusals))
            refusals.TryAdd(symbol, error);
        Refusals = refusals;
        if (!Usable.Contains(true))
            throw SymbolChecks.NoUsableSymbol([.. refusals.Values]).ToException();
        Scale = EnsembleManifest.Mean(Array.ConvertAll(members, one => ManagedModel.Scatter(one.Inputs.Scale, one.Usable)), []);
    }

    public PreparedRequest[] Members { get; }

    public RawBars? Bars { get; }

    /// <summary>[S] whether every member can forecast the symbol.</summary>
    public bool[] Usable { get; }

    /// <summary>The error of each symbol that some member cannot forecast, from the first such member.</summary>
    public IReadOnlyDictionary<string, QuantraError> Refusals { get; }

    /// <summary>[S, H] mean of the members' window volatilities; NaN for an unusable symbol.</summary>
    public double[] Scale { get; }
}
