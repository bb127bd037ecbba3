using System.Globalization;
using System.Runtime.InteropServices;
using System.Text.Json;

namespace Quantra.Client.Managed.Tests;

/// <summary>A request and Python's result for it, written by tests/managed_artifacts.py.</summary>
internal sealed class RecordedRequest
{
    private static readonly JsonElement All = JsonDocument.Parse(File.ReadAllText(Path.Combine(Folder, "requests.json"))).RootElement;

    private readonly JsonElement _root;

    private RecordedRequest(JsonElement root) => _root = root;

    /// <summary>Folder of the committed artifacts.</summary>
    public static string Folder => Path.Combine(AppContext.BaseDirectory, "Artifacts");

    public static string Models => Path.Combine(Folder, "models");

    public static IReadOnlyList<string> Names => [.. All.EnumerateObject().Select(one => one.Name)];

    /// <summary>Name of the model.</summary>
    public string Model => _root.GetProperty("model").GetString()!;

    public DateTimeOffset Now => DateTimeOffset.Parse(_root.GetProperty("now").GetString()!, CultureInfo.InvariantCulture);

    /// <summary>Python's forecast, or its error.</summary>
    public JsonElement Expected => _root.GetProperty("expected");

    /// <summary>The request for price paths.</summary>
    public static RecordedRequest Paths => new(JsonDocument.Parse(File.ReadAllText(Path.Combine(Folder, "paths.json"))).RootElement);

    public static RecordedRequest Of(string name) => new(All.GetProperty(name));

    public int Number(string name) => _root.GetProperty(name).GetInt32();

    public PredictionRequest Request() => new(Model, Bars())
    {
        Covariates = ReadCovariates(_root.GetProperty("covariates")),
        GapPolicy = _root.GetProperty("gap_policy").GetString() switch
        {
            "mask" => GapPolicy.Mask,
            "ignore" => GapPolicy.Ignore,
            _ => GapPolicy.Refuse,
        },
        AllowIncompleteLastBar = _root.GetProperty("allow_incomplete_last_bar").GetBoolean(),
        AcceptSuspectBars = _root.GetProperty("accept_suspect_bars").GetBoolean(),
    };

    /// <summary>The request with all prices multiplied.</summary>
    public static PredictionRequest WithPrices(PredictionRequest request, double factor)
    {
        var bars = request.Bars!;
        return new(request.Model, bars with { Open = Times(bars.Open), High = Times(bars.High), Low = Times(bars.Low), Close = Times(bars.Close), AdjustedClose = Times(bars.AdjustedClose) });

        double[] Times(ReadOnlyMemory<double> prices) => Array.ConvertAll(prices.ToArray(), price => factor * price);
    }

    public BarPanel Bars() => new()
    {
        Symbols = Texts(_root.GetProperty("bars").GetProperty("symbols")),
        Sessions = Array.ConvertAll(Column<int>("sessions", 1), Date),
        Open = Column<double>("open"),
        High = Column<double>("high"),
        Low = Column<double>("low"),
        Close = Column<double>("close"),
        Volume = Column<double>("volume"),
        AdjustedClose = Column<double>("adj_close"),
        SplitRatio = Column<double>("split_ratio"),
        CashDividend = Column<double>("cash_dividend"),
        Calendar = _root.GetProperty("bars").GetProperty("calendar").GetString()!,
    };

    public static T[] Decoded<T>(JsonElement value)
        where T : unmanaged => MemoryMarshal.Cast<byte, T>(value.GetBytesFromBase64()).ToArray();

    public static DateOnly Date(int day) => new(day / 10000, day / 100 % 100, day % 100);

    public static string[] Texts(JsonElement list) => [.. list.EnumerateArray().Select(item => item.GetString()!)];

    /// <summary>A column, or the last sessions of the first request's.</summary>
    private T[] Column<T>(string name, int rows = 2)
        where T : unmanaged
    {
        if (!_root.GetProperty("bars").TryGetProperty(name, out var value))
            return [];
        if (value.ValueKind == JsonValueKind.String)
            return Decoded<T>(value);
        var (whole, count) = (Decoded<T>(All.EnumerateObject().First().Value.GetProperty("bars").GetProperty(name)), value.GetInt32());
        var length = whole.Length / rows;
        return [.. Enumerable.Range(0, rows).SelectMany(row => whole[(((row + 1) * length) - count)..((row + 1) * length)])];
    }

    private static Covariates ReadCovariates(JsonElement sent)
    {
        return new Covariates
        {
            Observed = Group("observed"),
            Known = Group("known"),
            Numbers = Group("numbers"),
            FutureSessions = Array.ConvertAll(Decoded<int>(sent.GetProperty("future_sessions")), Date),
            Categories = sent.GetProperty("categories").EnumerateObject().ToDictionary(one => one.Name, one => (IReadOnlyList<string>)Texts(one.Value)),
        };

        Dictionary<string, ReadOnlyMemory<double>> Group(string name) =>
            sent.GetProperty(name).EnumerateObject().ToDictionary(one => one.Name, one => (ReadOnlyMemory<double>)Decoded<double>(one.Value));
    }
}
