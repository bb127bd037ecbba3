using System.Text;
using Google.Protobuf;

namespace Quantra.Client.Wire;

/// <summary>Upper bounds of a request's size on the wire, without encoding it. The Python client uses the same bounds and so splits alike.</summary>
/// <param name="Head">Bytes that every part has.</param>
/// <param name="Rows">Bytes of each symbol.</param>
internal sealed record RequestSizeEstimate(long Head, IReadOnlyList<long> Rows)
{
    /// <summary>Requests up to this size are sent as they are: trimming them saves less than it costs.</summary>
    private const int TrimThreshold = 16 * 1024;

    /// <summary>Slack of the bounds. A request that exceeds the limit by less is measured.</summary>
    private const int Slack = 64 * 1024;

    private const int Number = 8;
    private const int Date = 4;
    private const int TextHead = 4;
    private const int NameHead = 16;
    private const int InstanceHead = 1024;
    private const int CallHead = 64;
    private const int FieldHead = 8;

    public long Total { get; } = Head + Rows.Sum();

    public long LargestRow { get; } = Rows.Count == 0 ? 0 : Rows.Max();

    /// <summary>Bytes of a call without its requests.</summary>
    public static long OfEmptyCall(ModelReference model) => CallHead + Length(model.Text);

    public static RequestSizeEstimate Of(PredictionRequest request)
    {
        if (request.Bars is not { } bars)
            return new(InstanceHead + RequestWriter.Predict(request.Model, [request]).CalculateSize(), []);
        var (covariates, futureSessions) = (request.Covariates, request.Covariates.FutureSessions.Length);
        string[] names = [.. covariates.Observed.Keys, .. covariates.Known.Keys, .. covariates.Numbers.Keys, .. covariates.Categories.Keys];
        var head = InstanceHead + Length(request.RequestId) + ((long)Date * (bars.Sessions.Length + futureSessions));
        return new(head + names.Sum(name => NameHead + Length(name)), OfRows(bars, covariates, futureSessions));
    }

    /// <summary>Whether the bars are so few that trimming is not worthwhile.</summary>
    public static bool IsSmall(IEnumerable<PredictionRequest> requests) =>
        requests.Where(one => one.Bars is not null).Sum(one => Of(one).Total - InstanceHead) <= TrimThreshold;

    public bool FitsInto(RequestLimits limits, PredictionRequest request)
    {
        if (request.Bars is { } bars
            && (bars.Symbols.Count > limits.Symbols || (long)bars.Symbols.Count * bars.Sessions.Length > limits.Cells))
        {
            return false;
        }

        return Total <= limits.Bytes
            || (Total <= limits.Bytes + Slack
                && RequestWriter.Predict(new(""), [request]).CalculateSize() + FieldHead <= limits.Bytes);
    }

    private static long[] OfRows(BarPanel bars, Covariates covariates, int futureSessions)
    {
        var columns = PanelSlicer.Columns(bars).Count() + covariates.Observed.Count + covariates.Known.Count;
        var numbers = ((long)bars.Sessions.Length * columns) + ((long)futureSessions * covariates.Known.Count) + covariates.Numbers.Count;
        long[] rows = [.. bars.Symbols.Select(symbol => TextHead + Length(symbol) + (Number * numbers))];
        foreach (var texts in covariates.Categories.Values.Where(texts => texts.Count == rows.Length))
        {
            for (var row = 0; row < rows.Length; row++)
                rows[row] += TextHead + Length(texts[row]);
        }

        return rows;
    }

    private static int Length(string text) => Encoding.UTF8.GetByteCount(text);
}
