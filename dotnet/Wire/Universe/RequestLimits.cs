namespace Quantra.Client.Wire;

/// <summary>How large one request of a predictor may be, as it tells with each of its models.</summary>
/// <param name="Bytes">Of the whole request.</param>
/// <param name="Instances">Of one request.</param>
/// <param name="Rows">Symbols of all instances together.</param>
/// <param name="Symbols">Of one panel.</param>
/// <param name="Cells">Symbols times sessions of one panel.</param>
internal sealed record RequestLimits(long Bytes, int Instances, int Rows, int Symbols, long Cells)
{
    /// <summary>What a server takes that does not say.</summary>
    private static readonly RequestLimits Usual = new(16 * 1024 * 1024, 4096, 20_000, 10_000, 8_000_000);

    /// <summary>What a predictor tells, and no more bytes than the program lets through.</summary>
    /// <param name="told">Null or 0 = it does not say.</param>
    /// <param name="mostBytes">That the program lets through.</param>
    public static RequestLimits Of(V1.RequestLimits? told, long mostBytes) => new(
        Math.Min(told is { Bytes: > 0 } ? told.Bytes : Usual.Bytes, mostBytes),
        told is { Instances: > 0 } ? told.Instances : Usual.Instances,
        told is { Rows: > 0 } ? told.Rows : Usual.Rows,
        told is { Symbols: > 0 } ? told.Symbols : Usual.Symbols,
        told is { Cells: > 0 } ? told.Cells : Usual.Cells);
}
