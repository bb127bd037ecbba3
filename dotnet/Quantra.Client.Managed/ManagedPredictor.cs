using System.Threading.Channels;
using Quantra.Client.Wire;

namespace Quantra.Client.Managed;

/// <summary>Forecasts from the folder of a trained model, computed in this process without Python.</summary>
/// <remarks>
/// Thread-safe. Numbers, warnings and errors are those of the other predictors; numbers differ in the last digits of a float. What this
/// version cannot compute is rejected by name: see the README of the package.
/// </remarks>
public sealed class ManagedPredictor : IStockPredictor, IPathSimulator
{
    private readonly string _folder;
    private readonly TimeProvider _clock;
    private readonly ActiveCalls _calls;
    private readonly ServedModels _served;
    private readonly TimeSpan _timeout;
    private readonly bool _isView;

    private ManagedPredictor(string folder, TimeProvider clock, ModelRegistry models) =>
        (_folder, _clock, _calls, _served, _timeout) = (folder, clock, new ActiveCalls(), new ServedModels { Now = models }, CallTimeout.Default);

    private ManagedPredictor(ManagedPredictor predictor, TimeSpan timeout) =>
        (_folder, _clock, _calls, _served, _timeout, _isView) = (predictor._folder, predictor._clock, predictor._calls, predictor._served, timeout, true);

    /// <summary>Errors of the versions that could not be loaded.</summary>
    public IReadOnlyList<QuantraError> Problems => Models.Problems;

    private ModelRegistry Models => _served.Now;

    /// <summary>Opens a model's folder, verifies its files and compares its golden instance.</summary>
    /// <param name="folder">
    /// The folder of one version, such as "models/demo/1", which is model "demo"; or a folder of models NAME/VERSION, such as "models".
    /// </param>
    /// <param name="cancellationToken">Cancels the loading.</param>
    /// <returns>A predictor that is ready to answer.</returns>
    /// <exception cref="QuantraException">
    /// ARTIFACT_INVALID: the folder is not an intact version, or this package cannot compute it. CONFIGURATION_INVALID: there is no such folder,
    /// it holds no model that can be loaded, or the processor is too old.
    /// </exception>
    public static Task<ManagedPredictor> OpenAsync(string folder, CancellationToken cancellationToken = default) =>
        OpenAsync(folder, null, TimeProvider.System, cancellationToken);

    /// <summary>Opens only the versions of a lock file; see <see cref="OpenAsync(string, CancellationToken)"/>.</summary>
    /// <param name="folder">A folder of models, or the folder of one version.</param>
    /// <param name="lockFile">
    /// The output of "sha256sum */*/manifest.json" in the folder of models. It is read once; reloads use the same versions.
    /// </param>
    /// <param name="cancellationToken">Cancels the loading.</param>
    /// <returns>A predictor that is ready to answer. Other versions, and listed ones that are missing, are among its problems.</returns>
    /// <exception cref="QuantraException">As without a lock file. CONFIGURATION_INVALID also: the lock file is invalid.</exception>
    public static Task<ManagedPredictor> OpenAsync(string folder, string lockFile, CancellationToken cancellationToken = default)
    {
        ArgumentException.ThrowIfNullOrEmpty(lockFile);
        return OpenAsync(folder, lockFile, TimeProvider.System, cancellationToken);
    }

    /// <summary>Reads the folder again. Calls that run keep their models; unchanged versions are kept.</summary>
    /// <param name="cancellationToken">Cancels the loading.</param>
    /// <returns>A task that completes when new calls use the new models.</returns>
    /// <exception cref="QuantraException">As <see cref="OpenAsync(string, CancellationToken)"/>; the present models stay.</exception>
    public Task ReloadAsync(CancellationToken cancellationToken = default) => _calls.StartAsync(
        this,
        token => Task.Run(() => _served.Reload(_folder, token), CancellationToken.None),
        cancellationToken);

    /// <summary>Returns a predictor whose calls have another timeout than 30 seconds. A call checks it between requests and steps.</summary>
    /// <param name="timeout">Positive, at most a day.</param>
    /// <returns>A predictor with the same models. It ends with this one and need not be disposed.</returns>
    public ManagedPredictor WithTimeout(TimeSpan timeout) => new(this, CallTimeout.Validate(timeout));

    /// <inheritdoc/>
    public Task<Forecast> PredictAsync(PredictionRequest request, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(request);
        NullCheck.Request(request, nameof(request));
        return RunAsync(_ => Models.Find(request.Model.Text).Predict(request, _clock.GetUtcNow()), cancellationToken);
    }

    /// <inheritdoc/>
    public Task<IReadOnlyList<PredictionResult>> PredictManyAsync(
        IReadOnlyList<PredictionRequest> requests,
        CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(requests);
        PredictionRequest[] copy = [.. requests]; // the caller may change the list while the call runs
        for (var index = 0; index < copy.Length; index++)
            NullCheck.Request(copy[index], nameof(requests), index);
        return RunAsync<IReadOnlyList<PredictionResult>>(limit => PredictMany(copy, limit), cancellationToken);
    }

    /// <inheritdoc/>
    public Task<PathSimulation> SimulatePathsAsync(PathSimulationRequest request, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(request);
        NullCheck.PathSimulation(request);
        return RunAsync(limit => Simulate(request, limit), cancellationToken);
    }

    /// <inheritdoc/>
    public Task<Attribution> ExplainAsync(ExplanationRequest request, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(request);
        var many = request.ToMany();
        NullCheck.Explanation(many);
        return RunAsync(limit => Explain(many, limit)[0], cancellationToken);
    }

    /// <inheritdoc/>
    public Task<IReadOnlyList<Attribution>> ExplainManyAsync(
        ManyExplanationsRequest request,
        CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(request);
        NullCheck.Explanation(request);
        return RunAsync<IReadOnlyList<Attribution>>(limit => Explain(request, limit), cancellationToken);
    }

    /// <inheritdoc/>
    public IAsyncEnumerable<GlobalExplanationProgress> ExplainGlobalAsync(
        GlobalExplanationRequest request,
        CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(request);
        NullCheck.GlobalExplanation(request);
        var copy = request with { Instances = [.. request.Instances] };
        return AsyncProducer.EnumerateAsync<GlobalExplanationProgress>(
            (reports, stoppedToken) => RunAsync(limit => ExplainGlobal(copy, reports, limit), stoppedToken),
            cancellationToken);
    }

    /// <inheritdoc/>
    public Task<IReadOnlyList<ModelInfo>> ListModelsAsync(CancellationToken cancellationToken = default) =>
        RunAsync(_ => Models.Infos(), cancellationToken);

    /// <inheritdoc/>
    public Task<ModelInfo> GetModelAsync(ModelReference model, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(model);
        return RunAsync(
            _ =>
            {
                var models = Models;
                return models.Info(models.Find(model.Text));
            },
            cancellationToken);
    }

    /// <summary>Rejects new calls and waits for running ones.</summary>
    /// <returns>A task that completes when all calls have ended.</returns>
    public async ValueTask DisposeAsync()
    {
        if (!_isView)
            await _calls.CloseAsync(Timeout.InfiniteTimeSpan).ConfigureAwait(false);
    }

    /// <summary>Opens a folder with another clock.</summary>
    internal static Task<ManagedPredictor> OpenAsync(string folder, TimeProvider clock, CancellationToken cancellationToken) =>
        OpenAsync(folder, null, clock, cancellationToken);

    private static async Task<ManagedPredictor> OpenAsync(string folder, string? lockFile, TimeProvider clock, CancellationToken cancellationToken)
    {
        ArgumentException.ThrowIfNullOrEmpty(folder);
        var models = await Task.Run(
            () => ModelRegistry.Open(folder, lockFile is null ? null : VersionLock.Read(lockFile), cancellationToken),
            cancellationToken).ConfigureAwait(false);
        return new ManagedPredictor(folder, clock, models);
    }

    private PathSimulation Simulate(PathSimulationRequest request, CallLimit limit)
    {
        var (model, instance) = (Models.Find(request.Instance.Model.Text), request.Instance);
        if (instance.Bars is not { } panel)
            throw PathError.Invalid("paths need bars, but the input has feature windows; give bars with their past");
        var bars = BarChecks.Check(panel);
        var forecast = model.Predict(instance, _clock.GetUtcNow());
        limit.Check();
        return PathSimulator.Simulate(forecast, bars, request.Paths, request.Seed).Answer(request, forecast);
    }

    private PredictionResult[] PredictMany(PredictionRequest[] requests, CallLimit limit)
    {
        var (models, results) = (Models, new PredictionResult[requests.Length]);
        QuantraException? notFound = null;
        var isAnswered = requests.Length == 0;
        for (var index = 0; index < requests.Length; index++)
        {
            limit.Check();
            var request = requests[index];
            try
            {
                results[index] = new(request.RequestId, models.Find(request.Model.Text).Predict(request, _clock.GetUtcNow()), null);
                isAnswered = true;
            }
            catch (QuantraException error)
            {
                var isUnknown = error.Reason is QuantraReason.ModelNotFound or QuantraReason.VersionNotFound;
                notFound ??= isUnknown ? error : null;
                isAnswered |= !isUnknown;
                results[index] = new(request.RequestId, null, error.Error);
            }
        }

        return isAnswered || notFound is null ? results : throw notFound;
    }

    private Attribution[] Explain(ManyExplanationsRequest request, CallLimit limit) =>
        Models.Find(request.Instance.Model.Text).Explain(request, _clock.GetUtcNow(), limit);

    /// <summary>Writes the reports while they are read; returns whether all were.</summary>
    private bool ExplainGlobal(GlobalExplanationRequest request, ChannelWriter<GlobalExplanationProgress> reports, CallLimit limit)
    {
        var model = Models.Find(request.Instances[0].Model.Text);
        return GlobalExplanation.Run(model, request, _clock.GetUtcNow(), limit).All(reports.TryWrite);
    }

    private Task<T> RunAsync<T>(Func<CallLimit, T> call, CancellationToken cancellationToken) => _calls.StartAsync(
        this,
        token => Task.Run(() =>
        {
            var limit = new CallLimit(_timeout, token);
            limit.Check();
            return call(limit);
        }),
        cancellationToken);

    /// <summary>The models of this predictor and of those with another timeout.</summary>
    private sealed class ServedModels
    {
        private readonly object _reloading = new();
        private volatile ModelRegistry? _now;

        public required ModelRegistry Now
        {
            get => _now!;
            init => _now = value;
        }

        /// <summary>Reads the folder again; of several reloads, the last to begin determines the models.</summary>
        public ModelRegistry Reload(string folder, CancellationToken cancellationToken)
        {
            lock (_reloading)
                return _now = _now!.Reload(folder, cancellationToken);
        }
    }
}
