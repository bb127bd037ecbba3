namespace Quantra.Client.Wire;

/// <summary>Assigns requests to calls within the limits of the server. Calls are as full as possible and keep the order of the requests.</summary>
/// <param name="Calls">The parts of each call.</param>
/// <param name="Rejected">Errors of requests that fit into no call, by index.</param>
internal sealed record CallPlan(IReadOnlyList<IReadOnlyList<PanelPart>> Calls, IReadOnlyDictionary<int, QuantraError> Rejected)
{
    /// <summary>
    /// Symbols in one forward pass with the server's default batch size. Parts end at multiples of it, so that the network multiplies
    /// matrices of the same size as in a single call and returns the same last digits.
    /// </summary>
    private const int ForwardSymbols = 256;

    /// <summary>Plans the calls for trimmed requests of one model.</summary>
    public static CallPlan Create(IReadOnlyList<PredictionRequest> requests, ServedModel model, ModelReference reference)
    {
        var limits = model.Limits with { Bytes = model.Limits.Bytes - RequestSizeEstimate.OfEmptyCall(reference) };
        var (parts, rejected) = (new List<PanelPart>(), new Dictionary<int, QuantraError>());
        for (var index = 0; index < requests.Count; index++)
        {
            if (Rejection(requests[index], model, limits) is { } error)
                rejected[index] = error;
            else
                parts.AddRange(Split(index, requests[index], limits));
        }

        return new([.. Pack(parts, limits)], rejected);
    }

    /// <summary>Checks that a request which cannot be split fits into one call.</summary>
    /// <exception cref="QuantraException">REQUEST_TOO_LARGE, with the size and the limit.</exception>
    public static void Check(PredictionRequest request, ServedModel model, string advice)
    {
        var size = RequestSizeEstimate.Of(request);
        if (!size.FitsInto(model.Limits, request))
            throw TooLarge(request, size, model, advice).ToException();
    }

    /// <summary>Returns the error of a request that fits into no call, or null.</summary>
    private static QuantraError? Rejection(PredictionRequest request, ServedModel model, RequestLimits limits)
    {
        var size = RequestSizeEstimate.Of(request);
        if (request.Bars is null || size.FitsInto(limits, request))
            return null;
        if (model.IsPanelModel)
            return TooLarge(request, size, model, $"{model.Reference} looks across the symbols of a panel, which therefore cannot be split; send fewer symbols");
        return size.Head + (2 * size.LargestRow) > limits.Bytes
            ? TooLarge(request, size, model, "not even two symbols fit into one call; send fewer sessions")
            : null;
    }

    private static IEnumerable<PanelPart> Split(int index, PredictionRequest request, RequestLimits limits)
    {
        var size = RequestSizeEstimate.Of(request);
        var symbols = (request.Bars?.Symbols ?? request.Window!.Symbols).Count;
        if (request.Bars is not { } bars || size.FitsInto(limits, request) || !PanelSlicer.IsConsistent(request, bars))
        {
            yield return new(index, new(0, symbols), size.Total, IsWhole: true);
            yield break;
        }

        var maxSymbols = (int)Math.Min(limits.Symbols, Math.Max(1, limits.Cells / bars.Sessions.Length));
        for (var first = 0; first < symbols;)
        {
            var (end, bytes) = FindEnd(first, size, limits.Bytes, maxSymbols);
            yield return new(index, new(first, end), size.Head + bytes, IsWhole: false);
            first = end;
        }
    }

    /// <summary>Finds the end of a part and the bytes of its rows. Leaves room for one more symbol, see PlanExecution.RetryUnusablePartsAsync.</summary>
    private static (int End, long Bytes) FindEnd(int first, RequestSizeEstimate size, long maxBytes, int maxSymbols)
    {
        var (end, bytes, room) = (first, 0L, maxBytes - size.Head - size.LargestRow);
        for (; end < size.Rows.Count && end - first < maxSymbols && bytes + size.Rows[end] <= room; end++)
            bytes += size.Rows[end];
        if (end == size.Rows.Count || end - first <= ForwardSymbols)
            return (end, bytes);
        var boundary = first + ((end - first) / ForwardSymbols * ForwardSymbols);
        while (end > boundary)
            bytes -= size.Rows[--end];
        return (end, bytes);
    }

    /// <summary>Packs consecutive parts into calls.</summary>
    private static IEnumerable<IReadOnlyList<PanelPart>> Pack(List<PanelPart> parts, RequestLimits limits)
    {
        var (call, size, rows) = (new List<PanelPart>(), 0L, 0);
        foreach (var part in parts)
        {
            var isFull = size + part.Size > limits.Bytes || rows + part.Rows.Count > limits.Rows || call.Count == limits.Instances;
            if (call.Count > 0 && isFull)
            {
                yield return call;
                (call, size, rows) = ([], 0, 0);
            }

            call.Add(part);
            (size, rows) = (size + part.Size, rows + part.Rows.Count);
        }

        if (call.Count > 0)
            yield return call;
    }

    private static QuantraError TooLarge(PredictionRequest request, RequestSizeEstimate size, ServedModel model, string advice)
    {
        var symbols = (request.Bars?.Symbols ?? request.Window!.Symbols).Count;
        var sessions = request.Bars is { } bars ? FormattableString.Invariant($" of {bars.Sessions.Length} sessions") : "";
        var message = FormattableString.Invariant(
            $"{symbols} symbols{sessions} take up to {size.Total} bytes, but a request may have {model.Limits.Bytes} bytes and {model.Limits.Symbols} symbols; {advice}");
        var metadata = new Dictionary<string, string>
        {
            ["have"] = FormattableString.Invariant($"{size.Total}"),
            ["most"] = FormattableString.Invariant($"{model.Limits.Bytes}"),
            ["symbols"] = FormattableString.Invariant($"{symbols}"),
        };
        return new(QuantraStatus.ResourceExhausted, QuantraReason.RequestTooLarge, message, metadata);
    }
}
