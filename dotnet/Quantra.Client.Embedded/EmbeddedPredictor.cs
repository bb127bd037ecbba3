using System.Collections.Concurrent;
using Google.Protobuf;
using Python.Runtime;
using Quantra.Client.Wire;

namespace Quantra.Client.Embedded;

/// <summary>Forecasts from Python inside this process: no server, the same numbers and the same errors.</summary>
/// <remarks>
/// Python lives as long as the process; dispose the predictor to release its models. A crash of Python ends the process:
/// where that must not happen, run a server and use <c>QuantraClient</c> of Quantra.Client.
/// </remarks>
/// <example>
/// <code>
/// await using var predictor = await EmbeddedPredictor.OpenAsync(new EmbeddedPredictorOptions { Models = "models" });
/// var bars = BarPanel.ReadCsv("bars.csv").Select("AAPL");
/// Console.WriteLine(await predictor.PredictAsync(new PredictionRequest("stock", bars)));
/// </code>
/// </example>
public sealed class EmbeddedPredictor : IStockPredictor
{
    private readonly PythonHost _host;
    private readonly PythonDoor _door;
    private readonly EmbeddedPredictorOptions _options;
    private readonly bool _isView;
    private readonly CallsUnderWay _calls;
    private readonly CallTurns _turns;
    private readonly ConcurrentDictionary<string, ServedModel> _models;
    private readonly Planning _planning;
    private readonly EmbeddedStreams _streams;
    private readonly SessionStreams _sessions;
    private readonly TaskCompletionSource _closed = new(TaskCreationOptions.RunContinuationsAsynchronously);

    private EmbeddedPredictor(PythonHost host, PythonDoor door, EmbeddedPredictorOptions options, IReadOnlyList<QuantraError> problems)
        : this(host, door, options, new CallsUnderWay(), new CallTurns(), new()) => Problems = problems;

    private EmbeddedPredictor(EmbeddedPredictor predictor, TimeSpan timeout)
        : this(predictor._host, predictor._door, predictor._options with { Timeout = timeout }, predictor._calls, predictor._turns, predictor._models) =>
        (Problems, _isView) = (predictor.Problems, true);

    private EmbeddedPredictor(
        PythonHost host,
        PythonDoor door,
        EmbeddedPredictorOptions options,
        CallsUnderWay calls,
        CallTurns turns,
        ConcurrentDictionary<string, ServedModel> models)
    {
        (_host, _door, _options, _calls, _turns, _models) = (host, door, options, calls, turns, models);
        _streams = new EmbeddedStreams(host, door, options);
        _planning = new Planning(new EmbeddedModelDoor(_streams.Settings, AnswerAsync), models);
        _sessions = new SessionStreams(_streams, calls.Ending);
        Problems = [];
    }

    /// <summary>Errors of the artifacts that could not be loaded; the others are served.</summary>
    public IReadOnlyList<QuantraError> Problems { get; }

    /// <summary>Starts Python if it is not running yet, and loads every model of a folder.</summary>
    /// <param name="options">What to load and how to run it.</param>
    /// <param name="cancellationToken">
    /// Ends the wait at once. What Python has begun, it ends by itself, and lets go of it; another predictor may be opened.
    /// </param>
    /// <returns>A predictor that is ready to answer.</returns>
    /// <exception cref="QuantraException">
    /// CONFIGURATION_INVALID: there is no such environment or folder of models; PACKAGE_MISSING: quantra is not installed
    /// in the environment.
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

    /// <summary>This predictor with another timeout, for some of the calls.</summary>
    /// <param name="timeout">Positive, at most a day.</param>
    /// <returns>A predictor of the same models. It ends with this one; it need not be disposed.</returns>
    public EmbeddedPredictor WithTimeout(TimeSpan timeout) => new(this, CallTimeout.Checked(timeout));

    /// <inheritdoc/>
    public Task<Forecast> PredictAsync(PredictionRequest request, CancellationToken cancellationToken = default) =>
        PredictorCalls.PredictAsync(_calls, this, request, _planning, cancellationToken);

    /// <inheritdoc/>
    public Task<IReadOnlyList<PredictionResult>> PredictManyAsync(
        IReadOnlyList<PredictionRequest> requests,
        CancellationToken cancellationToken = default) =>
        PredictorCalls.PredictManyAsync(_calls, this, requests, _planning, cancellationToken);

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
            many => _calls.RunAsync(this, either => _planning.ExplainAsync(many, either), cancellationToken));

    /// <inheritdoc/>
    public IAsyncEnumerable<GlobalExplanationProgress> ExplainGlobalAsync(
        GlobalExplanationRequest request,
        CancellationToken cancellationToken = default) =>
        PredictorStreams.ExplainGlobalAsync(_calls, this, request, _planning, _streams.ExplainGlobalAsync, cancellationToken);

    /// <inheritdoc/>
    public async Task<IReadOnlyList<ModelInfo>> ListModelsAsync(CancellationToken cancellationToken = default)
    {
        var answer = await CallAsync(
            "ListModels",
            () => new V1.ListModelsRequest(),
            V1.ListModelsResponse.Parser,
            cancellationToken).ConfigureAwait(false);
        return [.. answer.Models.Select(ResponseReader.Model)];
    }

    /// <inheritdoc/>
    public async Task<ModelInfo> GetModelAsync(ModelReference model, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(model);
        var answer = await CallAsync(
            "GetModel",
            () => new V1.GetModelRequest { Model = model.Text },
            V1.GetModelResponse.Parser,
            cancellationToken).ConfigureAwait(false);
        return ResponseReader.Model(answer.Model);
    }

    /// <summary>Takes no more calls, waits for those under way as long as the grace time, and releases the models.</summary>
    /// <returns>A task that completes when the models are released.</returns>
    public ValueTask DisposeAsync() => _isView ? default : new(EndAsync(_options.GraceTime));

    private static async Task<EmbeddedPredictor> LoadAsync(EmbeddedPredictorOptions options, CancellationToken cancellationToken)
    {
        var environment = PythonEnvironment.Find(options.PythonEnvironment);
        var host = await PythonHost.StartAsync(environment).ConfigureAwait(false);
        cancellationToken.ThrowIfCancellationRequested();
        var (door, statuses) = await host.Threads.OpenAsync(() => Open(options, environment)).ConfigureAwait(false);
        var problems = Array.ConvertAll(statuses, StatusReader.Error);
        if (door is null)
            throw problems[0].ToException();
        var predictor = new EmbeddedPredictor(host, door, options, problems.AsReadOnly());
        host.Threads.Add(predictor.EndAsync);
        return predictor;
    }

    /// <summary>Lets go of a predictor that nobody waits for any more, once it is there.</summary>
    private static async Task ReleaseAsync(Task<EmbeddedPredictor> opening)
    {
        await ((Task)opening).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        if (opening.IsCompletedSuccessfully)
            await (await opening.ConfigureAwait(false)).DisposeAsync().ConfigureAwait(false);
    }

    /// <summary>Cancels what is under way and releases the models, when the process ends.</summary>
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

    /// <summary>The door and the status of each artifact that was refused, or no door and the status of the error.</summary>
    private static (PythonDoor? Door, byte[][] Statuses) Open(EmbeddedPredictorOptions options, string environment)
    {
        using var module = Import(environment);
        using var models = new PyString(options.Models);
        using var device = new PyString(options.Device);
        using var maxBatchRows = new PyInt(options.MaxBatchRows);
        using var threads = new PyInt(options.Threads);
        using var opened = module.InvokeMethod("open_door", models, device, maxBatchRows, threads);
        using var statuses = opened[1];
        PythonHost.Settle();
        var door = opened[0];
        return (door.IsNone() ? null : new PythonDoor(door), PythonBytes.CopyEach(statuses));
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
                $"the Python of {environment} cannot import quantra: {error.Message}; run pip install 'quantra[dotnet]' in it")
                .ToException(error);
        }
    }

    /// <summary>Makes a call that the end of this predictor waits for, none of it on the caller's thread.</summary>
    private Task<TResponse> CallAsync<TResponse>(
        string name,
        Func<IMessage> write,
        MessageParser<TResponse> parser,
        CancellationToken cancellationToken)
        where TResponse : IMessage<TResponse> =>
        _calls.RunAsync(this, async either => EmbeddedModelDoor.Parsed(parser, await AnswerAsync(name, write(), Deadline.After(_options.Timeout), either).ConfigureAwait(false)), cancellationToken);

    private async Task<byte[]> AnswerAsync(string name, IMessage request, Deadline deadline, CancellationToken cancellationToken)
    {
        using var turn = await _turns.TakeAsync(request is V1.ExplainRequest, _options.Timeout, deadline.Left, cancellationToken).ConfigureAwait(false);
        var left = deadline.Left;
        var call = new EmbeddedCall(_host, _options.Timeout, left > TimeSpan.Zero ? left : TimeSpan.Zero, _calls.IsAlone);
        return await call.RunAsync(_door, name, request.ToByteArray(), cancellationToken).ConfigureAwait(false);
    }

    private bool Close()
    {
        _door.Close();
        PythonHost.Settle();
        return true;
    }
}
