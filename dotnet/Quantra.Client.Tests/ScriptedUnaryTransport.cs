using Quantra.Client.Wire;

namespace Quantra.Client.Tests;

/// <summary>A transport whose responses a test scripts, and which records calls.</summary>
internal sealed class ScriptedUnaryTransport : IUnaryTransport
{
    public CallSettings Settings { get; init; } = new()
    {
        Target = "the script",
        Timeout = TimeSpan.FromSeconds(30),
        MaxInFlight = 32,
        MaxAttempts = 1,
        MaxRequestBytes = 20_000,
    };

    /// <summary>The described model.</summary>
    public V1.ModelInfo Model { get; } = new() { Name = "small", Version = 1, WeightsHash = "1", BarsNeeded = 100 };

    /// <summary>The version that answers predictions.</summary>
    public int Version { get; set; } = 1;

    /// <summary>Called before each prediction.</summary>
    public Action<IReadOnlyList<PredictionRequest>> Before { get; set; } = _ => { };

    /// <summary>Whether a symbol has no forecast.</summary>
    public Func<string, bool> IsUnusable { get; set; } = _ => false;

    public int Learnt { get; private set; }

    public List<IReadOnlyList<PredictionRequest>> Predictions { get; } = [];

    public List<ManyExplanationsRequest> Explanations { get; } = [];

    public List<DateTime> Deadlines { get; } = [];

    /// <summary>Symbols of each prediction.</summary>
    public IEnumerable<string> Sent => Predictions.Select(call => string.Join('|', call.Select(one => string.Join(',', one.Bars!.Symbols))));

    public Task<V1.GetModelResponse> GetModelAsync(ModelReference model, Deadline deadline, CancellationToken cancellationToken)
    {
        Learnt++;
        Deadlines.Add(deadline.AtUtc);
        return Task.FromResult(new V1.GetModelResponse { Model = Model.Clone() });
    }

    public Task<IReadOnlyList<PredictionResult>> PredictAsync(
        ModelReference model,
        IReadOnlyList<PredictionRequest> requests,
        Deadline deadline,
        CancellationToken cancellationToken)
    {
        cancellationToken.ThrowIfCancellationRequested();
        Predictions.Add(requests);
        Deadlines.Add(deadline.AtUtc);
        Before(requests);
        return Task.FromResult<IReadOnlyList<PredictionResult>>([.. requests.Select(Result)]);
    }

    public Task<IReadOnlyList<Attribution>> ExplainAsync(ManyExplanationsRequest request, Deadline deadline, CancellationToken cancellationToken)
    {
        Explanations.Add(request);
        Deadlines.Add(deadline.AtUtc);
        return Task.FromResult<IReadOnlyList<Attribution>>(
            [ResponseReader.Attribution(new V1.Attribution { Version = Version, WeightsHash = $"{Version}" })]);
    }

    /// <summary>Creates a result with the last closes as values and the symbols as id.</summary>
    private PredictionResult Result(PredictionRequest request)
    {
        var bars = request.Bars!;
        if (bars.Symbols.All(IsUnusable))
            return new(request.RequestId, null, Refusal("no symbol can be forecast"));
        var closes = bars.Symbols.Select((symbol, row) => IsUnusable(symbol) ? double.NaN : bars.Close.Span[((row + 1) * bars.Sessions.Length) - 1]);
        var forecast = new V1.Forecast
        {
            Symbols = { bars.Symbols },
            Horizons = { 1 },
            Quantiles = { 0.5 },
            Values = ArrayBytes.Of<double>(closes.ToArray()),
            Version = Version,
            WeightsHash = $"{Version}",
            ForecastId = string.Join(',', bars.Symbols),
            Warnings = { "the same of each part", $"of {bars.Symbols[0]}" },
        };
        var read = ResponseReader.Forecast(forecast) with
        {
            Refusals = bars.Symbols.Where(IsUnusable).ToDictionary(symbol => symbol, symbol => Refusal($"{symbol}: has no bar")),
        };
        return new(request.RequestId, read, null);
    }

    private static QuantraError Refusal(string message) => new(QuantraStatus.InvalidArgument, QuantraReason.NoUsableSymbol, message);
}
