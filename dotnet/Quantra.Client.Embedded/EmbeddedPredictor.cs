using System.Collections.Concurrent;
using Google.Protobuf;
using Python.Runtime;
using Quantra.Client.Wire;

namespace Quantra.Client.Embedded;

/// <summary>Forecasts with Python inside this process. Needs no server and returns the same numbers and errors as one.</summary>
/// <remarks>
/// Python runs until the process ends; dispose the predictor to release its models. A crash of Python ends the process. To avoid that
/// risk, run a server and use <c>QuantraClient</c> of Quantra.Client.
/// </remarks>
/// <example>
/// <code>
/// await using var predictor = await EmbeddedPredictor.OpenAsync(new EmbeddedPredictorOptions { Models = "models" });
/// var bars = BarPanel.ReadCsv("bars.csv").Select("AAPL");
/// Console.WriteLine(await predictor.PredictAsync(new PredictionRequest("stock", bars)));
/// </code>
/// </example>
public sealed class EmbeddedPredictor : IStockPredictor, IPathSimulator
{
    private readonly PythonHost _host;
    private readonly EmbeddedServer _server;
    private readonly EmbeddedPredictorOptions _options;
    private readonly bool _isView;
    private readonly ActiveCalls _calls;
    private readonly CallLimiter _limiter;
    private readonly ConcurrentDictionary<string, ServedModel> _models;
    private readonly PanelPlanner _planner;
    private readonly EmbeddedStreamTransport _streams;
    private readonly SessionRegistry _sessions;
    private readonly TaskCompletionSource _closed = new(TaskCreationOptions.RunContinuationsAsynchronously);

    private EmbeddedPredictor(PythonHost host, EmbeddedServer server, EmbeddedPredictorOptions options, IReadOnlyList<QuantraError> problems)
        : this(host, server, options, new ActiveCalls(), new CallLimiter(), new()) => Problems = problems;

    private EmbeddedPredictor(EmbeddedPredictor predictor, TimeSpan timeout)
        : this(predictor._host, predictor._server, predictor._options with { Timeout = timeout }, predictor._calls, predictor._limiter, predictor._models) =>
        (Problems, _isView) = (predictor.Problems, true);

    private EmbeddedPredictor(
        PythonHost host,
        EmbeddedServer server,
        EmbeddedPredictorOptions options,
        ActiveCalls calls,
        CallLimiter limiter,
        ConcurrentDictionary<string, ServedModel> models)
    {
        (_host, _server, _options, _calls, _limiter, _models) = (host, server, options, calls, limiter, models);
        _streams = new EmbeddedStreamTransport(host, server, options);
        _planner = new PanelPlanner(new EmbeddedUnaryTransport(_streams.Settings, SendAsync), models);
        _sessions = new SessionRegistry(_streams, calls.Ending);
        Problems = [];
    }

    /// <summary>Errors of the artifacts that could not be loaded. The others are served.</summary>
    public IReadOnlyList<QuantraError> Problems { get; }

    /// <summary>Starts Python if it is not running yet, and loads every model of a folder.</summary>
    /// <param name="options">What to load and how to run it.</param>
    /// <param name="cancellationToken">
    /// Ends the wait at once. Python finishes what it has started in the background and releases it. You can open another predictor.
    /// </param>
    /// <returns>A predictor that is ready to answer.</returns>
    /// <exception cref="QuantraException">
    /// CONFIGURATION_INVALID: the environment or the folder of models does not exist. PACKAGE_MISSING: quantra is not installed in the
    /// environment.
    /// </exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public static async Task<EmbeddedPredictor> OpenAsync(
        EmbeddedPredictorOptions options,
        CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(options);
        var opening = Task.Run(() => LoadAsync(options, cancellationToken), cancellationToken);
        try
        {
            return await opening.WaitAsync(cancellationToken).ConfigureAwait(false);
        }
        catch (OperationCanceledException)
        {
            _ = ReleaseAsync(opening);
            throw;
        }
    }

    /// <summary>Returns a view of this predictor with another timeout.</summary>
    /// <param name="timeout">Positive, at most a day.</param>
    /// <returns>A predictor with the same models. It ends with this one and need not be disposed.</returns>
    public EmbeddedPredictor WithTimeout(TimeSpan timeout) => new(this, CallTimeout.Validate(timeout));

    /// <inheritdoc/>
    public Task<Forecast> PredictAsync(PredictionRequest request, CancellationToken cancellationToken = default) =>
        PredictorCalls.PredictAsync(_calls, this, request, _planner, cancellationToken);

    /// <inheritdoc/>
    public Task<IReadOnlyList<PredictionResult>> PredictManyAsync(
        IReadOnlyList<PredictionRequest> requests,
        CancellationToken cancellationToken = default) =>
        PredictorCalls.PredictManyAsync(_calls, this, requests, _planner, cancellationToken);

    /// <inheritdoc/>
    public IAsyncEnumerable<PredictionResult> PredictStreamAsync(
        IAsyncEnumerable<PredictionRequest> requests,
        CancellationToken cancellationToken = default) =>
        PredictorStreams.PredictStreamAsync(_streams, _calls, this, requests, cancellationToken);

    /// <inheritdoc/>
    public Task<IBarSession> OpenSessionAsync(SessionRequest request, CancellationToken cancellationToken = default) =>
        BarSession.OpenAsync(_streams, _sessions, _calls, this, request, cancellationToken);

    /// <inheritdoc/>
    public Task<Attribution> ExplainAsync(ExplanationRequest request, CancellationToken cancellationToken = default) =>
        PredictorCalls.ExplainAsync(this, request, cancellationToken);

    /// <inheritdoc/>
    public Task<IReadOnlyList<Attribution>> ExplainManyAsync(
        ManyExplanationsRequest request,
        CancellationToken cancellationToken = default) =>
        PredictorCalls.ExplainManyAsync(
            request,
            many => _calls.RunAsync(this, linkedToken => _planner.ExplainAsync(many, linkedToken), cancellationToken));

    /// <inheritdoc/>
    public IAsyncEnumerable<GlobalExplanationProgress> ExplainGlobalAsync(
        GlobalExplanationRequest request,
        CancellationToken cancellationToken = default) =>
        PredictorStreams.ExplainGlobalAsync(
            _calls,
            this,
            request,
            _planner,
            (message, report, linkedToken) =>
                _streams.ReadAsync("ExplainGlobal", message, V1.ExplainGlobalProgress.Parser, report, _options.Timeout, linkedToken),
            cancellationToken);

    /// <inheritdoc/>
    public Task<PathSimulation> SimulatePathsAsync(PathSimulationRequest request, CancellationToken cancellationToken = default) =>
        PredictorCalls.SimulatePathsAsync(_calls, this, request, SimulateAsync, cancellationToken);

    /// <inheritdoc/>
    public async Task<IReadOnlyList<ModelInfo>> ListModelsAsync(CancellationToken cancellationToken = default)
    {
        var response = await CallAsync(
            "ListModels",
            () => new V1.ListModelsRequest(),
            V1.ListModelsResponse.Parser,
            cancellationToken).ConfigureAwait(false);
        return [.. response.Models.Select(ResponseReader.Model)];
    }

    /// <inheritdoc/>
    public async Task<ModelInfo> GetModelAsync(ModelReference model, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(model);
        var response = await CallAsync(
            "GetModel",
            () => new V1.GetModelRequest { Model = model.Text },
            V1.GetModelResponse.Parser,
            cancellationToken).ConfigureAwait(false);
        return ResponseReader.Model(response.Model);
    }

    /// <summary>Rejects new calls, waits for running calls up to the grace time, and releases the models.</summary>
    /// <returns>A task that completes when the models are released.</returns>
    public ValueTask DisposeAsync() => _isView ? default : new(EndAsync(_options.GraceTime));

    private static async Task<EmbeddedPredictor> LoadAsync(EmbeddedPredictorOptions options, CancellationToken cancellationToken)
    {
        var environment = PythonEnvironment.Find(options.PythonEnvironment);
        var host = await PythonHost.StartAsync(environment).ConfigureAwait(false);
        cancellationToken.ThrowIfCancellationRequested();
        var (server, statuses) = await host.Threads.OpenAsync(() => Open(options, environment)).ConfigureAwait(false);
        var problems = Array.ConvertAll(statuses, StatusReader.Error);
        if (server is null)
            throw problems[0].ToException();
        var predictor = new EmbeddedPredictor(host, server, options, problems.AsReadOnly());
        host.Threads.Add(predictor.EndAsync);
        return predictor;
    }

    /// <summary>Disposes a predictor whose caller has cancelled the opening.</summary>
    private static async Task ReleaseAsync(Task<EmbeddedPredictor> opening)
    {
        await ((Task)opening).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        if (opening.IsCompletedSuccessfully)
            await (await opening.ConfigureAwait(false)).DisposeAsync().ConfigureAwait(false);
    }

    /// <summary>Cancels running calls and releases the models at the end of the process.</summary>
    private Task EndAsync() => EndAsync(TimeSpan.Zero);

    private async Task EndAsync(TimeSpan grace)
    {
        if (!await _calls.CloseAsync(grace).ConfigureAwait(false))
        {
            await _closed.Task.ConfigureAwait(false);
            return;
        }

        try
        {
            await _host.Threads.RunAsync(Close).ConfigureAwait(false);
        }
        finally
        {
            _host.Threads.Remove(EndAsync);
            _closed.SetResult();
        }
    }

    /// <summary>Returns the server and the status of each rejected artifact, or no server and the status of the error.</summary>
    private static (EmbeddedServer? Server, byte[][] Statuses) Open(EmbeddedPredictorOptions options, string environment)
    {
        using var module = Import(environment);
        using var models = new PyString(options.Models);
        using var device = new PyString(options.Device);
        using var maxBatchRows = new PyInt(options.MaxBatchRows);
        using var threads = new PyInt(options.Threads);
        using var opened = module.InvokeMethod("open_embedded_server", models, device, maxBatchRows, threads);
        using var statuses = opened[1];
        PythonHost.FreezeGarbage();
        var server = opened[0];
        return (server.IsNone() ? null : new EmbeddedServer(server), PythonBytes.CopyEach(statuses));
    }

    private static PyObject Import(string environment)
    {
        try
        {
            return Py.Import("predictor.embed");
        }
        catch (PythonException error) when (error.Type.Name is "ModuleNotFoundError" or "ImportError")
        {
            throw new QuantraError(
                QuantraStatus.FailedPrecondition,
                QuantraReason.PackageMissing,
                $"the Python of {environment} cannot import quantra: {error.Message}; run pip install 'quantra[dotnet]' in that environment")
                .ToException(error);
        }
    }

    /// <summary>Runs a call on a pool thread. Disposal waits for it.</summary>
    private Task<TResponse> CallAsync<TResponse>(
        string name,
        Func<IMessage> write,
        MessageParser<TResponse> parser,
        CancellationToken cancellationToken)
        where TResponse : IMessage<TResponse> =>
        _calls.RunAsync(this, async linkedToken => EmbeddedUnaryTransport.Parse(parser, await SendAsync(name, write(), Deadline.After(_options.Timeout), linkedToken).ConfigureAwait(false)), cancellationToken);

    private async Task<byte[]> SendAsync(string name, IMessage request, Deadline deadline, CancellationToken cancellationToken)
    {
        using var slot = await _limiter.AcquireAsync(request is V1.ExplainRequest, _options.Timeout, deadline.Remaining, cancellationToken).ConfigureAwait(false);
        var left = deadline.Remaining;
        var call = new EmbeddedCall(_host, _options.Timeout, left > TimeSpan.Zero ? left : TimeSpan.Zero, _calls.HasAtMostOne);
        return await call.RunAsync(_server, name, request.ToByteArray(), cancellationToken).ConfigureAwait(false);
    }

    private async Task SimulateAsync(
        V1.SimulatePathsRequest request,
        Action<V1.SimulatePathsResponse> receive,
        CancellationToken cancellationToken)
    {
        var deadline = Deadline.After(_options.Timeout);
        using var slot = await _limiter.AcquireAsync(isExplanation: true, _options.Timeout, deadline.Remaining, cancellationToken).ConfigureAwait(false);
        await _streams.ReadAsync(
            "SimulatePaths", request, V1.SimulatePathsResponse.Parser, receive, deadline.Remaining, cancellationToken).ConfigureAwait(false);
    }

    private bool Close()
    {
        _server.Close();
        PythonHost.FreezeGarbage();
        return true;
    }
}
