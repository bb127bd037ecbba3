using System.Text;
using Google.Protobuf;

namespace Quantra.Client.Wire;

/// <summary>Bytes of a request on the wire, at most: bounds that need no encoding, the same as the Python client's, so that both split alike.</summary>
/// <param name="Head">What every part has.</param>
/// <param name="Rows">Of each symbol.</param>
internal sealed record RequestBytes(long Head, IReadOnlyList<long> Rows)
{
    /// <summary>Bytes of bars that are sent as they are: to learn what could be left out of them would cost more.</summary>
    private const int Small = 16 * 1024;

    /// <summary>By which a bound may be wrong; a request so little too large is measured.</summary>
    private const int Doubt = 64 * 1024;

    private const int Number = 8;
    private const int Date = 4;
    private const int TextHead = 4;
    private const int NameHead = 16;
    private const int InstanceHead = 1024;
    private const int CallHead = 64;
    private const int FieldHead = 8;

    /// <summary>Of the whole request.</summary>
    public long Total { get; } = Head + Rows.Sum();

    /// <summary>The largest of a symbol.</summary>
    public long LargestRow { get; } = Rows.Count == 0 ? 0 : Rows.Max();

    /// <summary>Of a call, beside its requests.</summary>
    public static long OfCall(ModelReference model) => CallHead + Length(model.Text);

    /// <summary>Of a request.</summary>
    public static RequestBytes Of(PredictionRequest request)
    {
        if (request.Bars is not { } bars)
            return new(InstanceHead + RequestWriter.Predict(request.Model, [request]).CalculateSize(), []);
        var (beside, ahead) = (request.Covariates, request.Covariates.FutureSessions.Length);
        string[] names = [.. beside.Observed.Keys, .. beside.Known.Keys, .. beside.Numbers.Keys, .. beside.Categories.Keys];
        var head = InstanceHead + Length(request.RequestId) + ((long)Date * (bars.Sessions.Length + ahead));
        return new(head + names.Sum(name => NameHead + Length(name)), OfRows(bars, beside, ahead));
    }

    /// <summary>Whether there are so few bars among these that they are sent as they are.</summary>
    public static bool AreSmall(IEnumerable<PredictionRequest> requests) =>
        requests.Where(one => one.Bars is not null).Sum(one => Of(one).Total - InstanceHead) <= Small;

    /// <summary>Whether one call can hold a request.</summary>
    /// <param name="request">Of these bytes.</param>
    /// <param name="limits">Of the call's requests.</param>
    public bool AreWithin(RequestLimits limits, PredictionRequest request)
    {
        if (request.Bars is { } bars
            && (bars.Symbols.Count > limits.Symbols || (long)bars.Symbols.Count * bars.Sessions.Length > limits.Cells))
        {
            return false;
        }

        return Total <= limits.Bytes
            || (Total <= limits.Bytes + Doubt
                && RequestWriter.Predict(new(""), [request]).CalculateSize() + FieldHead <= limits.Bytes);
    }

    private static long[] OfRows(BarPanel bars, Covariates beside, int ahead)
    {
        var columns = PanelParts.Columns(bars).Count() + beside.Observed.Count + beside.Known.Count;
        var numbers = ((long)bars.Sessions.Length * columns) + ((long)ahead * beside.Known.Count) + beside.Numbers.Count;
        long[] rows = [.. bars.Symbols.Select(symbol => TextHead + Length(symbol) + (Number * numbers))];
        foreach (var texts in beside.Categories.Values.Where(texts => texts.Count == rows.Length))
        {
            for (var row = 0; row < rows.Length; row++)
                rows[row] += TextHead + Length(texts[row]);
        }

        return rows;
    }

    private static int Length(string text) => Encoding.UTF8.GetByteCount(text);
}
