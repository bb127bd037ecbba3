using System.Text.Json;
using Grpc.Core;
using Python.Runtime;
using Quantra.Client.Embedded.Json;

namespace Quantra.Client.Embedded;

/// <summary>Forecasts from Python inside this process: no server, the same numbers and the same errors.</summary>
/// <remarks>
/// Python lives as long as the process; dispose the predictor to release its models. A crash of Python ends the process:
/// where that must not happen, run a server and use <see cref="QuantraClient"/>.
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
    private readonly PyObject _door;
    private readonly EmbeddedPredictorOptions _options;
    private int _disposed;

    private EmbeddedPredictor(PythonHost host, PyObject door, EmbeddedPredictorOptions options, IReadOnlyList<QuantraError> problems)
    {
        _host = host;
        _door = door;
        _options = options;
        Problems = problems;
    }

    /// <summary>Errors of the artifacts that could not be loaded; the others are served.</summary>
    public IReadOnlyList<QuantraError> Problems { get; }

    /// <summary>Starts Python if it is not running yet, and loads every model of a folder.</summary>
    /// <param name="options">What to load and how to run it.</param>
    /// <returns>A predictor that is ready to answer.</returns>
    /// <exception cref="QuantraException">
    /// CONFIGURATION_INVALID: there is no such environment or folder of models; PACKAGE_MISSING: quantra is not installed
    /// in the environment.
    /// </exception>
    public static async Task<EmbeddedPredictor> OpenAsync(EmbeddedPredictorOptions options)
    {
        ArgumentNullException.ThrowIfNull(options);
        var environment = PythonEnvironment.Find(options.PythonEnvironment);
        var host = await PythonHost.StartAsync(environment).ConfigureAwait(false);
        var (door, text) = await host.RunAsync(() => Open(options, environment)).ConfigureAwait(false);
        var problems = JsonResponseReader.Read(new JsonResponse(text, []), answer => answer.Objects("problems", problem => problem.Error()));
        return new EmbeddedPredictor(host, door, options, problems);
    }

    /// <inheritdoc/>
    public Task<Forecast> PredictAsync(PredictionRequest request, CancellationToken cancellationToken = default) =>
        PredictorCalls.PredictAsync(this, request, cancellationToken);

    /// <inheritdoc/>
    public Task<IReadOnlyList<PredictionResult>> PredictManyAsync(
        IReadOnlyList<PredictionRequest> requests,
        CancellationToken cancellationToken = default) =>
        PredictorCalls.PredictManyAsync(requests, async (model, same) =>
        {
            var json = JsonRequestWriter.Predict(model, same, _options.Timeout);
            var response = await CallAsync("predict", json, cancellationToken).ConfigureAwait(false);
            return JsonResponseReader.Read(response, answer => answer.Objects("results", JsonResponseReader.Result));
        });

    /// <inheritdoc/>
    public Task<Attribution> ExplainAsync(ExplanationRequest request, CancellationToken cancellationToken = default) =>
        PredictorCalls.ExplainAsync(this, request, cancellationToken);

    /// <inheritdoc/>
    public Task<IReadOnlyList<Attribution>> ExplainManyAsync(
        ManyExplanationsRequest request,
        CancellationToken cancellationToken = default) =>
        PredictorCalls.ExplainManyAsync(request, async many =>
        {
            var json = JsonRequestWriter.Explain(many, _options.Timeout);
            var response = await CallAsync("explain", json, cancellationToken).ConfigureAwait(false);
            return JsonResponseReader.Read(response, answer => answer.Objects("attributions", JsonResponseReader.Attribution));
        });

    /// <inheritdoc/>
    public async Task<IReadOnlyList<ModelInfo>> ListModelsAsync(CancellationToken cancellationToken = default)
    {
        var response = await AskAsync(() => _door.InvokeMethod("list_models"), cancellationToken).ConfigureAwait(false);
        return JsonResponseReader.Read(response, answer => answer.Objects("models", JsonResponseReader.Model));
    }

    /// <inheritdoc/>
    public async Task<ModelInfo> GetModelAsync(ModelReference model, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(model);
        var response = await AskAsync(() => Describe(model), cancellationToken).ConfigureAwait(false);
        return JsonResponseReader.Read(response, answer => JsonResponseReader.Model(answer.Object("model")));
    }

    /// <summary>Finishes the calls in progress and releases the models.</summary>
    /// <returns>A task that completes when the models are released.</returns>
    public async ValueTask DisposeAsync()
    {
        if (Interlocked.Exchange(ref _disposed, 1) == 1)
            return;
        await _host.RunAsync(Close).ConfigureAwait(false);
    }

    private static (PyObject Door, string Text) Open(EmbeddedPredictorOptions options, string environment)
    {
        using var module = Import(environment);
        using var models = new PyString(options.Models);
        using var settings = new PyString(JsonSerializer.Serialize(
            new Dictionary<string, object>
            {
                ["device"] = options.Device,
                ["max_batch_rows"] = options.MaxBatchRows,
                ["threads"] = options.Threads,
            }));
        using var opened = module.InvokeMethod("open_door", models, settings);
        using var text = opened[1];
        PythonHost.Settle();
        return (opened[0], text.As<string>());
    }

    private static PyObject Import(string environment)
    {
        try
        {
            return Py.Import("predictor.embed");
        }
        catch (PythonException error) when (error.Type.Name is "ModuleNotFoundError" or "ImportError")
        {
            throw QuantraError.Of(
                StatusCode.FailedPrecondition,
                QuantraReason.PackageMissing,
                $"the Python of {environment} cannot import quantra: {error.Message}; run pip install 'quantra[dotnet]' in it")
                .ToException(error);
        }
    }

    private static JsonResponse Respond(Func<PyObject> ask)
    {
        using var text = ask();
        return new JsonResponse(text.As<string>(), []);
    }

    private async Task<JsonResponse> CallAsync(string method, JsonRequest request, CancellationToken cancellationToken)
    {
        ObjectDisposedException.ThrowIf(_disposed == 1, this);
        return await new EmbeddedCall(_host, _options.Timeout)
            .RunAsync(_door, method, request, cancellationToken).ConfigureAwait(false);
    }

    /// <summary>Asks the door for information that needs no computation.</summary>
    private Task<JsonResponse> AskAsync(Func<PyObject> ask, CancellationToken cancellationToken)
    {
        ObjectDisposedException.ThrowIf(_disposed == 1, this);
        return EmbeddedCall.WaitAsync(_host.RunAsync(() => Respond(ask)), _options.Timeout, cancellationToken);
    }

    private PyObject Describe(ModelReference model)
    {
        using var reference = new PyString(model.Text);
        return _door.InvokeMethod("get_model", reference);
    }

    private bool Close()
    {
        _door.InvokeMethod("close").Dispose();
        _door.Dispose();
        PythonHost.Settle();
        return true;
    }
}
