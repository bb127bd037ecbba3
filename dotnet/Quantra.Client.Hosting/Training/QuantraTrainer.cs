using System.Diagnostics.CodeAnalysis;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Logging.Abstractions;
using Quantra.Client.Hosting.Processes;
using Quantra.Client.Hosting.Training;

namespace Quantra.Client.Hosting;

/// <summary>Trains models, each in a Python process of its own that ends with this program, however that ends.</summary>
/// <remarks>Safe to use from many threads; trainings into different folders may go on side by side.</remarks>
/// <example>
/// <code>
/// await using var trainer = new QuantraTrainer();
/// var training = new StockTraining { Bars = "bars.csv", Out = "models/mine/1", Calendar = "XNYS" };
/// var result = await trainer.TrainAsync(training, new Progress&lt;TrainingProgress&gt;(Console.WriteLine));
/// Console.WriteLine(result);
/// </code>
/// </example>
public sealed class QuantraTrainer : IAsyncDisposable
{
    private readonly QuantraTrainerOptions _options;
    private readonly PythonLog _log;
    private readonly TimeProvider _time;

    [SuppressMessage("Usage", "CA2213:Disposable fields should be disposed", Justification = "without a timer the source holds nothing")]
    private readonly CancellationTokenSource _ending = new();

    private readonly HashSet<Task> _underWay = [];
    private bool _isDisposed;

    /// <summary>Makes a trainer that finds its Python environment by itself.</summary>
    public QuantraTrainer()
        : this(new QuantraTrainerOptions())
    {
    }

    /// <summary>Makes a trainer.</summary>
    /// <param name="options">Read whenever a training begins.</param>
    /// <param name="loggerFactory">Takes what trainings write beside their progress, as "Quantra.Training"; null = nothing.</param>
    /// <param name="timeProvider">Of grace times; null = the system's.</param>
    public QuantraTrainer(QuantraTrainerOptions options, ILoggerFactory? loggerFactory = null, TimeProvider? timeProvider = null)
    {
        ArgumentNullException.ThrowIfNull(options);
        _options = options;
        _log = new PythonLog((loggerFactory ?? NullLoggerFactory.Instance).CreateLogger("Quantra.Training"));
        _time = timeProvider ?? TimeProvider.System;
    }

    /// <summary>Trains a stock model and saves it as an artifact.</summary>
    /// <param name="training">What to train.</param>
    /// <param name="progress">Told of every step, in order; null = nobody is.</param>
    /// <param name="cancellationToken">
    /// Stops the training with a checkpoint; one that has not written it within <see cref="QuantraTrainerOptions.GraceTime"/> is ended by
    /// force. So does disposing the trainer.
    /// </param>
    /// <returns>The trained model.</returns>
    /// <exception cref="ArgumentException">Something is missing, or Arguments has a flag that is not for them.</exception>
    /// <exception cref="TrainingCanceledException">It was stopped; the message says what it left.</exception>
    /// <exception cref="QuantraException">The trainer's own error, or there is no Python with quantra.</exception>
    public async Task<TrainingResult> TrainAsync(
        StockTraining training,
        IProgress<TrainingProgress>? progress = null,
        CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(training);
        TrainingCommand.Check(training);
        using var either = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken, _ending.Token);
        var going = Begin(() => RunAsync(training, new TrainingRun(progress, cancellationToken), either.Token));
        try
        {
            return await going.ConfigureAwait(false);
        }
        finally
        {
            lock (_underWay)
                _underWay.Remove(going);
        }
    }

    /// <summary>Stops all trainings with a checkpoint, and waits for that.</summary>
    /// <returns>A task that completes when none is under way any more.</returns>
    public async ValueTask DisposeAsync()
    {
        Task[] underWay;
        lock (_underWay)
        {
            _isDisposed = true;
            underWay = [.. _underWay];
        }

        await _ending.CancelAsync().ConfigureAwait(false);
        await Task.WhenAll(underWay).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing); // their callers are told
    }

    /// <summary>Begins a training on other threads than the caller's.</summary>
    private Task<TrainingResult> Begin(Func<Task<TrainingResult>> run)
    {
        lock (_underWay)
        {
            ObjectDisposedException.ThrowIf(_isDisposed, this);
            var going = Task.Run(run);
            _underWay.Add(going);
            return going;
        }
    }

    private async Task<TrainingResult> RunAsync(StockTraining training, TrainingRun run, CancellationToken cancelled)
    {
        run.ThrowIfCancelled(cancelled);
        var command = TrainingCommand.Of(training, _options);
        var process = PythonProcess.Start(command, _log.Hear, _time);
        await using (process.ConfigureAwait(false))
        {
            await ReadAsync(process, run, cancelled).ConfigureAwait(false);
            var exitCode = await process.Ended.ConfigureAwait(false);
            return run.End(command.Environment, exitCode, process.LastErrors, cancelled.IsCancellationRequested);
        }
    }

    /// <summary>Takes all lines, and stops the process meanwhile if that is asked for.</summary>
    private async Task ReadAsync(PythonProcess process, TrainingRun run, CancellationToken cancelled)
    {
        Task? stopping = null;
        using (cancelled.UnsafeRegister(_ => stopping = process.StopAsync(_options.GraceTime, CancellationToken.None), null))
        {
            await foreach (var line in process.Output.ReadAllAsync(CancellationToken.None).ConfigureAwait(false))
                run.Take(line);
        }

        if (stopping is not null)
            await stopping.ConfigureAwait(false);
    }
}
