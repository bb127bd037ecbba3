namespace Quantra.Client.Wire;

/// <summary>How what is asked becomes calls that a predictor takes: in the order of the program, each as full as it may be.</summary>
/// <param name="Calls">The parts of each.</param>
/// <param name="Refused">Requests that no call can hold, by their place.</param>
internal sealed record CallPlan(IReadOnlyList<IReadOnlyList<CallPlan.Part>> Calls, IReadOnlyDictionary<int, QuantraError> Refused)
{
    /// <summary>
    /// Symbols of one forward pass of a server that was told nothing else: parts end where these end, so that a network multiplies
    /// the same matrices as in one call, whose last digits depend on their size.
    /// </summary>
    private const int Forward = 256;

    /// <summary>The calls that ask a model about requests which were cut for it.</summary>
    /// <param name="cut">In the order of the program.</param>
    /// <param name="model">To be asked.</param>
    /// <param name="reference">As the program names it.</param>
    public static CallPlan Of(IReadOnlyList<PredictionRequest> cut, ServedModel model, ModelReference reference)
    {
        var limits = model.Limits with { Bytes = model.Limits.Bytes - RequestBytes.OfCall(reference) };
        var (parts, refused) = (new List<Part>(), new Dictionary<int, QuantraError>());
        for (var place = 0; place < cut.Count; place++)
        {
            if (Refusal(cut[place], model, limits) is { } error)
                refused[place] = error;
            else
                parts.AddRange(PartsOf(place, cut[place], limits));
        }

        return new([.. Packed(parts, limits)], refused);
    }

    /// <summary>Refuses a request that one call cannot hold, where it cannot be split either.</summary>
    /// <param name="cut">For the model.</param>
    /// <param name="model">To be asked.</param>
    /// <param name="advice">What to do.</param>
    /// <exception cref="QuantraException">REQUEST_TOO_LARGE, with both sizes.</exception>
    public static void Check(PredictionRequest cut, ServedModel model, string advice)
    {
        var bytes = RequestBytes.Of(cut);
        if (!bytes.AreWithin(model.Limits, cut))
            throw TooLarge(cut, bytes, model, advice).ToException();
    }

    /// <summary>Why no calls can hold a request; null = some can.</summary>
    private static QuantraError? Refusal(PredictionRequest cut, ServedModel model, RequestLimits limits)
    {
        var bytes = RequestBytes.Of(cut);
        if (cut.Bars is null || bytes.AreWithin(limits, cut))
            return null;
        if (model.IsPanelModel)
            return TooLarge(cut, bytes, model, $"{model.Reference} looks across the symbols of a panel, so it cannot be split: send fewer symbols");
        return bytes.Head + (2 * bytes.LargestRow) > limits.Bytes
            ? TooLarge(cut, bytes, model, "not even two symbols fit at once: send fewer sessions")
            : null;
    }

    private static IEnumerable<Part> PartsOf(int place, PredictionRequest cut, RequestLimits limits)
    {
        var bytes = RequestBytes.Of(cut);
        var count = (cut.Bars?.Symbols ?? cut.Window!.Symbols).Count;
        if (cut.Bars is not { } bars || bytes.AreWithin(limits, cut) || !PanelParts.IsWhole(cut, bars))
        {
            yield return new(place, new(0, count), bytes.Total, IsAll: true);
            yield break;
        }

        var most = (int)Math.Min(limits.Symbols, Math.Max(1, limits.Cells / bars.Sessions.Length));
        for (var first = 0; first < count;)
        {
            var (end, size) = EndOf(first, bytes, limits.Bytes, most);
            yield return new(place, new(first, end), bytes.Head + size, IsAll: false);
            first = end;
        }
    }

    /// <summary>Where a part ends, and the bytes of its rows. It leaves room for one symbol more, beside which its own can be asked about again.</summary>
    private static (int End, long Size) EndOf(int first, RequestBytes bytes, long mostBytes, int mostSymbols)
    {
        var (end, size, room) = (first, 0L, mostBytes - bytes.Head - bytes.LargestRow);
        for (; end < bytes.Rows.Count && end - first < mostSymbols && size + bytes.Rows[end] <= room; end++)
            size += bytes.Rows[end];
        if (end == bytes.Rows.Count || end - first <= Forward)
            return (end, size);
        var whole = first + ((end - first) / Forward * Forward);
        while (end > whole)
            size -= bytes.Rows[--end];
        return (end, size);
    }

    /// <summary>As many parts, one after the other, as each call may hold.</summary>
    private static IEnumerable<IReadOnlyList<Part>> Packed(List<Part> parts, RequestLimits limits)
    {
        var (call, size, rows) = (new List<Part>(), 0L, 0);
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

    private static QuantraError TooLarge(PredictionRequest cut, RequestBytes bytes, ServedModel model, string advice)
    {
        var symbols = (cut.Bars?.Symbols ?? cut.Window!.Symbols).Count;
        var days = cut.Bars is { } bars ? FormattableString.Invariant($" of {bars.Sessions.Length} sessions") : "";
        var message = FormattableString.Invariant(
            $"{symbols} symbols{days} take up to {bytes.Total} bytes, and one request may have {model.Limits.Bytes} bytes and {model.Limits.Symbols} symbols; {advice}");
        var facts = new Dictionary<string, string>
        {
            ["have"] = FormattableString.Invariant($"{bytes.Total}"),
            ["most"] = FormattableString.Invariant($"{model.Limits.Bytes}"),
            ["symbols"] = FormattableString.Invariant($"{symbols}"),
        };
        return new(QuantraStatus.ResourceExhausted, QuantraReason.RequestTooLarge, message, facts);
    }

    /// <summary>Symbols of one request that go into one call.</summary>
    /// <param name="Place">Of the request among those asked.</param>
    /// <param name="Rows">Of its symbols.</param>
    /// <param name="Size">Bytes, at most.</param>
    /// <param name="IsAll">Whether these are all of the request.</param>
    internal sealed record Part(int Place, Rows Rows, long Size, bool IsAll)
    {
        /// <summary>What is asked about them.</summary>
        public PredictionRequest Of(IReadOnlyList<PredictionRequest> cut) =>
            IsAll || cut[Place].Bars is not { } bars ? cut[Place] : PanelParts.Of(cut[Place], bars, Rows);
    }
}
