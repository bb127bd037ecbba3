namespace Quantra.Client.Wire;

/// <summary>How large one request may be.</summary>
/// <param name="Bytes">Bytes of the whole request.</param>
/// <param name="Instances">Instances of one request.</param>
/// <param name="Rows">Symbols of all instances together.</param>
/// <param name="Symbols">Symbols of one panel.</param>
/// <param name="Cells">Symbols times sessions of one panel.</param>
internal sealed record RequestLimits(long Bytes, int Instances, int Rows, int Symbols, long Cells)
{
    /// <summary>Defaults of a server that does not report its limits.</summary>
    private static readonly RequestLimits Default = new(16 * 1024 * 1024, 4096, 20_000, 10_000, 8_000_000);

    /// <summary>Combines the reported limits, where 0 means unknown, with the client's own limit.</summary>
    public static RequestLimits Of(V1.RequestLimits? reported, long maxBytes) => new(
        Math.Min(reported is { Bytes: > 0 } ? reported.Bytes : Default.Bytes, maxBytes),
        reported is { Instances: > 0 } ? reported.Instances : Default.Instances,
        reported is { Rows: > 0 } ? reported.Rows : Default.Rows,
        reported is { Symbols: > 0 } ? reported.Symbols : Default.Symbols,
        reported is { Cells: > 0 } ? reported.Cells : Default.Cells);
}
