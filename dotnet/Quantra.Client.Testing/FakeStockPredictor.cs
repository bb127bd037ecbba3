using System.Collections.Concurrent;
using System.Globalization;

namespace Quantra.Client.Testing;

/// <summary>A predictor and path simulator for tests. It returns what the test sets, records the requests, and fails on demand.</summary>
/// <remarks>
/// By default it returns valid made-up results of its models. Handlers run synchronously on the caller's thread. To simulate a slow call,
/// return a task that the test completes. Thread-safe.
/// </remarks>
/// <example>
/// <code>
/// await using var predictor = new FakeStockPredictor();
/// predictor.OnPredict = (request, _) => Task.FromResult(new ForecastBuilder { Symbols = request.Bars!.Symbols }.Build());
/// var bars = BarPanel.ReadCsv("bars.csv").Select("AAPL");
/// await predictor.PredictAsync(new PredictionRequest("stock", bars));
/// Console.WriteLine(predictor.Predictions[0]);
/// predictor.Failure = new QuantraError(QuantraStatus.Unavailable, QuantraReason.Unavailable, "the server is down").ToException();
/// </code>
/// </example>
public sealed class FakeStockPredictor : IStockPredictor, IPathSimulator
{
    private readonly ConcurrentQueue<PredictionRequest> _predictions = new();
    private readonly ConcurrentQueue<ManyExplanationsRequest> _explanations = new();
    private readonly ConcurrentQueue<PathSimulationRequest> _simulations = new();
    private volatile bool _isDisposed;

    /// <summary>Creates a predictor that serves some models.</summary>
    /// <param name="models">The models; none = one named "stock".</param>
    public FakeStockPredictor(params ModelInfo[] models)
    {
        ArgumentNullException.ThrowIfNull(models);
        if (Array.Exists(models, model => model is null))
            throw new ArgumentException("a model is null", nameof(models));
        Models = models.Length > 0 ? [.. models] : [new ModelInfoBuilder().Build()];
        OnPredict = (request, _) => Task.FromResult(ForecastBuilder.For(Find(request.Model), request).Build());
        OnExplain = (request, _) => Task.FromResult(Explain(Find(request.Instance.Model), request));
        OnSimulate = (request, _) => Task.FromResult(new PathSimulationBuilder(request) { Model = Find(request.Instance.Model) }.Build());
    }

    /// <summary>Every served version.</summary>
    public IReadOnlyList<ModelInfo> Models { get; }

    /// <summary>Creates the forecast for a request, or throws. A <see cref="QuantraException"/> is the error of this request only.</summary>
    public Func<PredictionRequest, CancellationToken, Task<Forecast>> OnPredict { get; set; }

    /// <summary>Creates the attributions for a request, one per target, or throws.</summary>
    public Func<ManyExplanationsRequest, CancellationToken, Task<IReadOnlyList<Attribution>>> OnExplain { get; set; }

    /// <summary>Creates the price paths for a request and the answers from them, or throws.</summary>
    public Func<PathSimulationRequest, CancellationToken, Task<PathSimulation>> OnSimulate { get; set; }

    /// <summary>Exception that every call throws, as if the server were down; null = none.</summary>
    public Exception? Failure { get; set; }

    /// <summary>All prediction requests so far, in order.</summary>
    public IReadOnlyList<PredictionRequest> Predictions => [.. _predictions];

    /// <summary>All explanation requests so far, in order. Requests for a single number are converted to the form for several.</summary>
    public IReadOnlyList<ManyExplanationsRequest> Explanations => [.. _explanations];

    /// <summary>All requests for price paths so far, in order.</summary>
    public IReadOnlyList<PathSimulationRequest> Simulations => [.. _simulations];

    /// <summary>Whether the predictor is disposed. It then rejects calls.</summary>
    public bool IsDisposed => _isDisposed;

    /// <inheritdoc/>
    public async Task<Forecast> PredictAsync(PredictionRequest request, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(request);
        var results = await PredictManyAsync([request], cancellationToken).ConfigureAwait(false);
        return results[0].GetForecast();
    }

    /// <inheritdoc/>
    public async Task<IReadOnlyList<PredictionResult>> PredictManyAsync(
        IReadOnlyList<PredictionRequest> requests,
        CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(requests);
        foreach (var request in requests)
            _predictions.Enqueue(request ?? throw new ArgumentException("a request is null", nameof(requests)));
        Begin(cancellationToken);
        var results = await Task.WhenAll(requests.Select(request => AnswerAsync(request, cancellationToken))).ConfigureAwait(false);
        return results.AsReadOnly();
    }

    /// <inheritdoc/>
    public async Task<Attribution> ExplainAsync(ExplanationRequest request, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(request);
        var attributions = await ExplainManyAsync(request.ToMany(), cancellationToken).ConfigureAwait(false);
        return attributions[0];
    }

    /// <inheritdoc/>
    public async Task<IReadOnlyList<Attribution>> ExplainManyAsync(
        ManyExplanationsRequest request,
        CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(request);
        _explanations.Enqueue(request);
        Begin(cancellationToken);
        return await OnExplain(request, cancellationToken).ConfigureAwait(false);
    }

    /// <inheritdoc/>
    public async Task<PathSimulation> SimulatePathsAsync(PathSimulationRequest request, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(request);
        _simulations.Enqueue(request);
        Begin(cancellationToken);
        return await OnSimulate(request, cancellationToken).ConfigureAwait(false);
    }

    /// <inheritdoc/>
    public async Task<IReadOnlyList<ModelInfo>> ListModelsAsync(CancellationToken cancellationToken = default)
    {
        Begin(cancellationToken);
        return await Task.FromResult(Models).ConfigureAwait(false);
    }

    /// <inheritdoc/>
    public async Task<ModelInfo> GetModelAsync(ModelReference model, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(model);
        Begin(cancellationToken);
        return await Task.FromResult(Find(model)).ConfigureAwait(false);
    }

    /// <inheritdoc/>
    public ValueTask DisposeAsync()
    {
        _isDisposed = true;
        return default;
    }

    private static IReadOnlyList<Attribution> Explain(ModelInfo model, ManyExplanationsRequest request)
    {
        if (request.Method.Length > 0 && !model.ExplainMethods.Contains(request.Method))
        {
            var supported = string.Join(", ", model.ExplainMethods.Select(method => $"'{method}'"));
            throw Error(QuantraStatus.Unimplemented, QuantraReason.ExplainUnsupported, $"unknown method '{request.Method}'; the model supports [{supported}]");
        }

        var median = model.Quantiles.MinBy(level => Math.Abs(level - 0.5));
        var targets = request.Targets.Count > 0 ? request.Targets : [.. model.Horizons.Select(horizon => new ExplanationTarget(horizon, median))];
        return [.. targets.Select(target => AttributionBuilder.For(model, request, Known(model, target)).Build())];
    }

    private static ExplanationTarget Known(ModelInfo model, ExplanationTarget target)
    {
        if (!model.Horizons.Contains(target.Horizon))
            throw Error(QuantraStatus.InvalidArgument, QuantraReason.UnknownHorizon, $"{model.Name} has no horizon {target.Horizon}");
        return model.Quantiles.Contains(target.Quantile)
            ? target
            : throw Error(QuantraStatus.InvalidArgument, QuantraReason.UnknownQuantile, $"{model.Name} has no quantile {target.Quantile}");
    }

    private static QuantraException Error(QuantraStatus code, string reason, FormattableString message) =>
        new QuantraError(code, reason, message.ToString(CultureInfo.InvariantCulture)).ToException();

    private void Begin(CancellationToken cancellationToken)
    {
        ObjectDisposedException.ThrowIf(_isDisposed, this);
        cancellationToken.ThrowIfCancellationRequested();
        if (Failure is { } failure)
            throw failure;
    }

    private async Task<PredictionResult> AnswerAsync(PredictionRequest request, CancellationToken cancellationToken)
    {
        try
        {
            return new(request.RequestId, await OnPredict(request, cancellationToken).ConfigureAwait(false), null);
        }
        catch (QuantraException refusal)
        {
            return new(request.RequestId, null, refusal.Error);
        }
    }

    /// <summary>Returns the version that a reference resolves to.</summary>
    private ModelInfo Find(ModelReference reference)
    {
        ArgumentNullException.ThrowIfNull(reference.Text, nameof(reference));
        var (name, which) = reference.Text.Split('@', 2) is [var one, var other] ? (one, other) : (reference.Text, null);
        ModelInfo[] versions = [.. Models.Where(model => model.Name == name)];
        if (versions.Length == 0)
        {
            var served = string.Join(", ", Models.Select(model => model.Name).Distinct());
            throw Error(QuantraStatus.NotFound, QuantraReason.ModelNotFound, $"model {name} does not exist; the models are {served}");
        }

        return Array.Find(versions, model => which is null ? model.IsDefault : IsCalled(model, which))
            ?? (which is null ? versions.MaxBy(model => model.Version)! : throw Error(
                QuantraStatus.NotFound, QuantraReason.VersionNotFound, $"{name} has no version or alias {which}"));
    }

    private static bool IsCalled(ModelInfo model, string which) =>
        model.Version.ToString(CultureInfo.InvariantCulture) == which || model.Aliases.Contains(which);
}
