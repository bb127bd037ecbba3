using System.Diagnostics.CodeAnalysis;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Logging.Abstractions;
using Quantra.Client.Hosting.Processes;
using Quantra.Client.Hosting.Training;

namespace Quantra.Client.Hosting;

/// <summary>Trains models in child processes, which end with this program even after a crash.</summary>
/// <remarks>Thread-safe. Trainings into different folders can run at the same time.</remarks>
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

    [SuppressMessage("Usage", "CA2213:Disposable fields should be disposed", Justification = "a token source without a timer holds no resources")]
    private readonly CancellationTokenSource _ending = new();

    private readonly HashSet<Task> _running = [];
    private bool _isDisposed;

    /// <summary>Creates a trainer with default options.</summary>
    public QuantraTrainer()
        : this(new QuantraTrainerOptions())
    {
    }

    /// <summary>Creates a trainer.</summary>
    /// <param name="options">Options, read when a training starts.</param>
    /// <param name="loggerFactory">Logs the output of trainings under "Quantra.Training"; null = no logs.</param>
    /// <param name="timeProvider">Clock for grace times; null = the system's.</param>
    public QuantraTrainer(QuantraTrainerOptions options, ILoggerFactory? loggerFactory = null, TimeProvider? timeProvider = null)
    {
        ArgumentNullException.ThrowIfNull(options);
        _options = options;
        _log = new PythonLog((loggerFactory ?? NullLoggerFactory.Instance).CreateLogger("Quantra.Training"));
        _time = timeProvider ?? TimeProvider.System;
    }

    /// <summary>Trains a stock model and saves it as an artifact.</summary>
    /// <param name="training">What to train.</param>
    /// <param name="progress">Receives all progress in order; null = none.</param>
    /// <param name="cancellationToken">
    /// Stops the training after writing a checkpoint. If that takes longer than <see cref="QuantraTrainerOptions.GraceTime"/>, the process is
    /// killed. Disposing the trainer has the same effect.
    /// </param>
    /// <returns>The trained model.</returns>
    /// <exception cref="ArgumentException">A property is missing, or Arguments contains a flag that is not allowed.</exception>
    /// <exception cref="TrainingCanceledException">The training was stopped; the message names the checkpoint.</exception>
    /// <exception cref="QuantraException">The training failed, or no Python environment with Quantra was found.</exception>
    public async Task<TrainingResult> TrainAsync(
        StockTraining training,
        IProgress<TrainingProgress>? progress = null,
        CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(training);
        TrainingCommand.Validate(training);
        using var linked = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken, _ending.Token);
        var running = Start(() => RunAsync(training, new TrainingRun(progress, cancellationToken), linked.Token));
        try
        {
            return await running.ConfigureAwait(false);
        }
        finally
        {
            lock (_running)
                _running.Remove(running);
        }
    }

    /// <summary>Stops all trainings after writing checkpoints, and waits for them.</summary>
    /// <returns>A task that completes when all trainings have ended.</returns>
    public async ValueTask DisposeAsync()
    {
        Task[] running;
        lock (_running)
        {
            _isDisposed = true;
            running = [.. _running];
        }

        await _ending.CancelAsync().ConfigureAwait(false);
        await Task.WhenAll(running).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing); // their callers get the exceptions
    }

    /// <summary>Starts a training on a pool thread.</summary>
    private Task<TrainingResult> Start(Func<Task<TrainingResult>> run)
    {
        lock (_running)
        {
            ObjectDisposedException.ThrowIf(_isDisposed, this);
            var running = Task.Run(run);
            _running.Add(running);
            return running;
        }
    }

    private async Task<TrainingResult> RunAsync(StockTraining training, TrainingRun run, CancellationToken cancellation)
    {
        run.ThrowIfCancelled(cancellation);
        var command = TrainingCommand.Create(training, _options);
        var process = PythonProcess.Start(command, _log.Log, _time);
        await using (process.ConfigureAwait(false))
        {
            await ReadAsync(process, run, cancellation).ConfigureAwait(false);
            var exitCode = await process.Ended.ConfigureAwait(false);
            return run.GetResult(command.Environment, exitCode, process.LastErrors, cancellation.IsCancellationRequested);
        }
    }

    /// <summary>Processes all output. Stops the process if the token is cancelled.</summary>
    private async Task ReadAsync(PythonProcess process, TrainingRun run, CancellationToken cancellation)
    {
        Task? stopping = null;
        using (cancellation.UnsafeRegister(_ => stopping = process.StopAsync(_options.GraceTime, CancellationToken.None), null))
        {
            await foreach (var line in process.Output.ReadAllAsync(CancellationToken.None).ConfigureAwait(false))
                run.ReadLine(line);
        }

        if (stopping is not null)
            await stopping.ConfigureAwait(false);
    }
}
