using System.Buffers;
using System.Runtime.InteropServices;
using System.Text;
using System.Text.Json;

namespace Quantra.Client.Embedded.Json;

/// <summary>Writes one request as JSON and arrays, in the format of Python's predictor.embed.</summary>
internal sealed class JsonRequestWriter : IDisposable
{
    private readonly ArrayBufferWriter<byte> _text = new();
    private readonly Utf8JsonWriter _json;
    private readonly List<Array> _buffers = [];

    private JsonRequestWriter(ModelReference model, TimeSpan timeout)
    {
        _json = new Utf8JsonWriter(_text);
        _json.WriteStartObject();
        _json.WriteString("model", model.Text);
        _json.WriteNumber("timeout_s", timeout.TotalSeconds);
    }

    /// <summary>A request for forecasts.</summary>
    public static JsonRequest Predict(ModelReference model, IEnumerable<PredictionRequest> requests, TimeSpan timeout)
    {
        using var writer = new JsonRequestWriter(model, timeout);
        writer._json.WriteStartArray("instances");
        foreach (var request in requests)
            writer.Instance(request);
        writer._json.WriteEndArray();
        return writer.Finish();
    }

    /// <summary>A request for explanations.</summary>
    public static JsonRequest Explain(ManyExplanationsRequest request, TimeSpan timeout)
    {
        using var writer = new JsonRequestWriter(request.Instance.Model, timeout);
        writer._json.WritePropertyName("instance");
        writer.Instance(request.Instance);
        writer._json.WriteStartArray("targets");
        foreach (var target in request.Targets)
        {
            writer._json.WriteStartObject();
            writer._json.WriteNumber("horizon", target.Horizon);
            writer._json.WriteNumber("quantile", target.Quantile);
            writer._json.WriteEndObject();
        }

        writer._json.WriteEndArray();
        writer.Texts("symbols", request.Symbols);
        writer._json.WriteString("detail", NameOf(request.Detail));
        writer._json.WriteNumber("tolerance", request.Tolerance);
        return writer.Finish();
    }

    /// <inheritdoc/>
    public void Dispose() => _json.Dispose();

    private static string NameOf<T>(T value)
        where T : struct, Enum => value.ToString().ToLowerInvariant();

    private JsonRequest Finish()
    {
        _json.WriteEndObject();
        _json.Flush();
        return new JsonRequest(Encoding.UTF8.GetString(_text.WrittenSpan), _buffers);
    }

    private void Instance(PredictionRequest request)
    {
        _json.WriteStartObject();
        _json.WriteString("request_id", request.RequestId);
        _json.WriteBoolean("allow_incomplete_last_bar", request.AllowIncompleteLastBar);
        _json.WriteString("gap_policy", NameOf(request.GapPolicy));
        if (request.Bars is { } bars)
            Bars(bars);
        if (request.Window is { } window)
            Window(window);
        if (!request.Covariates.IsEmpty)
            Covariates(request.Covariates, request.Bars?.Symbols.Count ?? 0);
        _json.WriteEndObject();
    }

    private void Bars(BarPanel bars)
    {
        var (s, t) = (bars.Symbols.Count, bars.Sessions.Length);
        _json.WriteStartObject("bars");
        Texts("symbols", bars.Symbols);
        Array<int>("sessions", SessionNumber.Of(bars.Sessions.Span), t);
        Array("open", bars.Open, s, t);
        Array("high", bars.High, s, t);
        Array("low", bars.Low, s, t);
        Array("close", bars.Close, s, t);
        Array("volume", bars.Volume, s, t);
        Optional("adj_close", bars.AdjustedClose, s, t);
        Optional("split_ratio", bars.SplitRatio, s, t);
        Optional("cash_dividend", bars.CashDividend, s, t);
        _json.WriteString("calendar", bars.Calendar);
        _json.WriteString("currency", bars.Currency);
        _json.WriteEndObject();
    }

    private void Covariates(Covariates covariates, int symbols)
    {
        _json.WriteStartObject("covariates");
        Values("observed", covariates.Observed, array => [symbols, LastAxis.Of(array.Length, symbols)]);
        Values("known", covariates.Known, array => [symbols, LastAxis.Of(array.Length, symbols)]);
        Array<int>("future_sessions", SessionNumber.Of(covariates.FutureSessions.Span), covariates.FutureSessions.Length);
        Values("numbers", covariates.Numbers, array => [array.Length]);
        _json.WriteStartArray("categories");
        foreach (var (name, texts) in covariates.Categories)
        {
            _json.WriteStartObject();
            _json.WriteString("name", name);
            Texts("values", texts);
            _json.WriteEndObject();
        }

        _json.WriteEndArray();
        _json.WriteEndObject();
    }

    private void Values(
        string group,
        IReadOnlyDictionary<string, ReadOnlyMemory<double>> covariates,
        Func<ReadOnlyMemory<double>, int[]> shapeOf)
    {
        _json.WriteStartArray(group);
        foreach (var (name, values) in covariates)
        {
            _json.WriteStartObject();
            _json.WriteString("name", name);
            Array("values", values, shapeOf(values));
            _json.WriteEndObject();
        }

        _json.WriteEndArray();
    }

    private void Window(FeatureWindow window)
    {
        _json.WriteStartObject("window");
        Texts("symbols", window.Symbols);
        Array("observed", window.Observed, window.ObservedShape);
        Array("known", window.Known, window.KnownShape);
        Array("static", window.Static, window.StaticShape);
        Optional<byte>("mask", MemoryMarshal.AsBytes(window.Mask.Span).ToArray(), window.MaskShape);
        Array("location", window.Location, window.LevelShape(window.Location));
        Array("scale", window.Scale, window.LevelShape(window.Scale));
        Optional("anchor_price", window.AnchorPrice, window.AnchorPrice.Length);
        _json.WriteString("schema_hash", window.SchemaHash);
        Texts("features", window.Features);
        _json.WriteNumber("as_of_session", window.AsOf is { } day ? SessionNumber.Of(day) : 0);
        _json.WriteEndObject();
    }

    private void Texts(string name, IEnumerable<string> texts)
    {
        _json.WriteStartArray(name);
        foreach (var text in texts)
            _json.WriteStringValue(text);
        _json.WriteEndArray();
    }

    private void Optional<T>(string name, ReadOnlyMemory<T> array, params ReadOnlySpan<int> shape)
        where T : unmanaged
    {
        if (!array.IsEmpty)
            Array(name, array, shape);
    }

    private void Array<T>(string name, ReadOnlyMemory<T> array, params ReadOnlySpan<int> shape)
        where T : unmanaged
    {
        _json.WriteStartObject(name);
        _json.WriteNumber("buffer", _buffers.Count);
        _json.WriteStartArray("shape");
        foreach (var length in shape)
            _json.WriteNumberValue(length);
        _json.WriteEndArray();
        _json.WriteEndObject();
        _buffers.Add(WholeArray(array));
    }

    /// <summary>The array itself if the memory covers all of one, otherwise a copy.</summary>
    private static T[] WholeArray<T>(ReadOnlyMemory<T> memory) =>
        MemoryMarshal.TryGetArray(memory, out var part) && part.Array is { } array && array.Length == part.Count
            ? array
            : memory.ToArray();
}
