namespace Quantra.Client.Wire;

/// <summary>Some or all symbols of one request, sent in one call.</summary>
/// <param name="Index">Index of the request.</param>
/// <param name="Rows">The symbols.</param>
/// <param name="Size">Upper bound of the size in bytes.</param>
/// <param name="IsWhole">Whether these are all symbols of the request.</param>
internal sealed record PanelPart(int Index, RowRange Rows, long Size, bool IsWhole)
{
    /// <summary>Returns the request for this part.</summary>
    public PredictionRequest Of(IReadOnlyList<PredictionRequest> requests) =>
        IsWhole || requests[Index].Bars is not { } bars ? requests[Index] : PanelSlicer.Slice(requests[Index], bars, Rows);
}
